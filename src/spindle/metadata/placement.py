"""The brokers of new replicas: striped over racks, then brokers (Kafka's StripedReplicaPlacer).

Leaders go round-robin over the unfenced brokers. Racks are balanced before brokers. A fenced broker
gets a replica only if its rack has no unfenced broker left in the round. After as many partitions
as there are unfenced brokers, the order is shuffled, so that the same brokers are not always
neighbours.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ports import RandomSource


@dataclass(frozen=True, slots=True)
class UsableBroker:
    """A broker that may get replicas: not shutting down, and with an uncordoned directory."""

    broker_id: int
    rack: str | None
    is_fenced: bool


class _Cursor:
    """Iterates over brokers once per round, starting one further in each new round."""

    def __init__(self, brokers: list[int], random: RandomSource) -> None:
        self._brokers = sorted(brokers)
        self._offset = random.randrange(0, len(brokers)) if brokers else 0
        self._index = 0
        self._round = 0

    def next(self, round_number: int) -> int | None:
        """Return the next broker of the round, or None when it has seen them all."""
        if not self._brokers:
            return None
        if self._round != round_number:
            self._round = round_number
            self._index = 0
            self._offset = (self._offset + 1) % len(self._brokers)
        if self._index >= len(self._brokers):
            return None
        broker = self._brokers[(self._index + self._offset) % len(self._brokers)]
        self._index += 1
        return broker

    def shuffle(self, random: RandomSource) -> None:
        random.shuffle(self._brokers)


class _Rack:
    def __init__(self, brokers: Sequence[UsableBroker], random: RandomSource) -> None:
        self._unfenced = _Cursor([b.broker_id for b in brokers if not b.is_fenced], random)
        self._fenced = _Cursor([b.broker_id for b in brokers if b.is_fenced], random)

    def next_unfenced(self, round_number: int) -> int | None:
        return self._unfenced.next(round_number)

    def next(self, round_number: int) -> int | None:
        broker = self._unfenced.next(round_number)
        return broker if broker is not None else self._fenced.next(round_number)

    def shuffle(self, random: RandomSource) -> None:
        self._unfenced.shuffle(random)
        self._fenced.shuffle(random)


class ReplicaPlacer:
    """Places the partitions of one request. Make a new one for each topic."""

    def __init__(self, brokers: Iterable[UsableBroker], random: RandomSource) -> None:
        usable = list(brokers)
        by_rack: dict[str, list[UsableBroker]] = {}
        for broker in usable:
            by_rack.setdefault(broker.rack or "", []).append(broker)
        self._random = random
        self._racks = [_Rack(by_rack[name], random) for name in sorted(by_rack)]
        self._offset = random.randrange(0, len(self._racks)) if self._racks else 0
        self._usable_count = len(usable)
        self._unfenced_count = sum(1 for broker in usable if not broker.is_fenced)
        self._round = 0

    def place(self, partition_count: int, replication_factor: int) -> list[list[int]]:
        """Return the replicas of each partition, leader first.

        Raises:
            ApiError: INVALID_REPLICATION_FACTOR where the brokers do not suffice.
        """
        self._check(replication_factor)
        return [self._place_one(replication_factor) for _ in range(partition_count)]

    def _check(self, replication_factor: int) -> None:
        if replication_factor <= 0:
            text = (
                f"Invalid replication factor {replication_factor}: "
                "the replication factor must be positive."
            )
        elif self._unfenced_count == 0:
            text = "All brokers are currently fenced, or have all their log directories cordoned."
        elif replication_factor > self._usable_count:
            text = (
                f"The target replication factor of {replication_factor} cannot be reached because "
                f"only {self._usable_count} broker(s) are registered or some brokers have all "
                "their log directories cordoned."
            )
        else:
            return
        raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, text)

    def _place_one(self, replication_factor: int) -> list[int]:
        # With a single unfenced broker a shuffle would only repeat the same assignments.
        if self._round == self._unfenced_count and self._unfenced_count > 1:
            self._shuffle()
            self._round = 0
        self._offset %= len(self._racks)
        leader_rack, leader = self._place_leader()
        replicas = [leader]
        skip: int | None = leader_rack
        # Every time around, a rack that has a broker left gives one: `_check` has counted them.
        for step in range(len(self._racks) * (replication_factor + 1)):
            if len(replicas) == replication_factor:
                break
            rack_index = (self._offset + step) % len(self._racks)
            if rack_index == skip:
                skip = None
                continue
            broker = self._racks[rack_index].next(self._round)
            if broker is not None:
                replicas.append(broker)
        assert len(replicas) == replication_factor, "fewer brokers than were counted"
        self._round += 1
        self._offset += 1
        return replicas

    def _place_leader(self) -> tuple[int, int]:
        for step in range(len(self._racks)):
            rack_index = (self._offset + step) % len(self._racks)
            broker = self._racks[rack_index].next_unfenced(self._round)
            if broker is not None:
                return rack_index, broker
        raise AssertionError("no unfenced broker is left in the round")

    def _shuffle(self) -> None:
        order = list(range(len(self._racks)))
        self._random.shuffle(order)
        self._racks = [self._racks[index] for index in order]
        for rack in self._racks:
            rack.shuffle(self._random)
