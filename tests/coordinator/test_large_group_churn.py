"""Hundreds of members join, leave and die while the coordinator moves; then all is assigned."""

from random import Random
from typing import Final

import pytest
from classic_client import ClassicConsumer
from consumer_group_scenario import Consumer, ConsumerScenario

from spindle.common.errors import ErrorCode
from spindle.coordinator.config import ConsumerGroupConfig, GroupCoordinatorConfig

MEMBERS: Final = 200
PARTITIONS: Final = 450
ROUNDS: Final = 12
SETTLING_ROUNDS: Final = 120
ROUND_MS: Final = 1_000

REFUSALS: Final = (
    ErrorCode.NONE,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.UNKNOWN_MEMBER_ID,
)
"""Answers to a commit: accepted, or the member has to hear of a rebalance first."""

Client = ClassicConsumer | Consumer


class Crowd:
    """The clients of one group. Every fourth has an instance id, which returns after a death."""

    def __init__(self, kinds: tuple[str, ...], seed: int) -> None:
        config = GroupCoordinatorConfig(
            initial_rebalance_delay_ms=0, consumer=ConsumerGroupConfig(assignment_interval_ms=1_000)
        )
        self.s = ConsumerScenario(config, t=PARTITIONS)
        self.s.consumer_config = config.consumer
        self.kinds = kinds
        self.random = Random(seed)
        self.clients: list[Client] = []
        self.free_instances: list[tuple[str, str]] = []
        self.committed: dict[tuple[str, int], int] = {}
        self.born = 0

    def join(self) -> None:
        self.born += 1
        kind = self.kinds[self.born % len(self.kinds)]
        instance_id = f"i{self.born}" if self.born % 4 == 0 else None
        returning = [instance for instance in self.free_instances if instance[0] == kind]
        if instance_id is not None and returning:
            self.free_instances.remove(returning[0])
            instance_id = returning[0][1]
        self.clients.append(self._client(kind, instance_id))

    def _client(self, kind: str, instance_id: str | None) -> Client:
        if kind == "consumer":
            return self.s.join_consumer(f"m{self.born}", instance_id=instance_id)
        return ClassicConsumer(self.s, is_eager=kind == "eager", instance_id=instance_id)

    def leave(self) -> None:
        client = self._pick()
        if isinstance(client, ClassicConsumer):
            client.leave()
        else:
            self.s.beat(client.member_id, -1, instance_id=client.instance_id)

    def die(self) -> None:
        """Let a client fall silent; a static one of the consumer protocol says that it returns."""
        client = self._pick()
        if client.instance_id is None:
            return
        kind = "consumer"
        if isinstance(client, ClassicConsumer):
            kind = "eager" if client.is_eager else "cooperative"
        else:
            self.s.beat(client.member_id, -2, instance_id=client.instance_id)
        self.free_instances.append((kind, client.instance_id))

    def _pick(self) -> Client:
        return self.clients.pop(self.random.randrange(len(self.clients)))

    def move_coordinator(self) -> None:
        self.s.start()
        for client in self.clients:
            if isinstance(client, ClassicConsumer):
                client.reconnect()

    def step(self) -> None:
        for client in self.clients:
            if isinstance(client, ClassicConsumer):
                client.step()
            else:
                self.s.step(client)
        self.s.advance(ROUND_MS)
        read = self.read()
        assert len(read) == len(set(read)), "a partition has two readers"

    def commit(self, offset: int) -> None:
        """Let each client commit an offset of one partition, if it may at the moment."""
        for client in self.clients:
            if not client.partitions:
                continue
            partition = self.random.choice(client.partitions)
            epoch = client.epoch if isinstance(client, Consumer) else client.generation
            code = self.s.commit_offsets(
                {partition: offset},
                member_id=client.member_id,
                generation=epoch,
                instance_id=client.instance_id,
                version=9,
            )
            assert code in REFUSALS, code
            if code is ErrorCode.NONE:
                self.committed[partition] = offset

    def read(self) -> list[tuple[str, int]]:
        return [partition for client in self.clients for partition in client.partitions]

    def is_settled(self) -> bool:
        return len(self.read()) == PARTITIONS and len(self.shares()) <= 2

    def shares(self) -> set[int]:
        return {len(client.partitions) for client in self.clients}

    def churn(self) -> None:
        for number in range(ROUNDS):
            for _ in range(MEMBERS // 10):
                self.random.choice([self.join, self.leave, self.die, self.join])()
            if number % 4 == 3:
                self.move_coordinator()
            self.step()
            self.commit(number)

    def settle(self) -> None:
        for _ in range(SETTLING_ROUNDS):
            if self.is_settled():
                return
            self.step()
        raise AssertionError(f"{len(self.read())} partitions are read, {self.shares()} by each")


@pytest.mark.full
@pytest.mark.parametrize(
    "kinds",
    [("eager",), ("cooperative",), ("consumer",), ("consumer", "cooperative")],
    ids=" and ".join,
)
def test_a_group_of_hundreds_ends_in_an_exact_assignment(kinds: tuple[str, ...]) -> None:
    crowd = Crowd(kinds, seed=1)
    for _ in range(MEMBERS):
        crowd.join()
    crowd.settle()
    crowd.churn()
    crowd.settle()
    assert len(crowd.clients) > MEMBERS / 2
    assert not crowd.s.lost_requests()
    assert len(crowd.committed) > MEMBERS / 2
    assert crowd.s.fetch(*crowd.committed) == crowd.committed
