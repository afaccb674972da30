"""Members of a share group that break the rules: they acknowledge what others hold, or nobody.

Random requests seldom acquire a record. These workers do, and then acknowledge records twice, under
the ids of others, in reversed, enormous or negative ranges, and with arrays of types that do not
fit. Each of their requests must be answered, a record whose acceptance was confirmed must not be
delivered again, and the delivery count of a record must rise with each delivery.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from random import Random
from typing import Any, Final, NamedTuple

from spindle.common.errors import ErrorCode
from spindle.common.uuids import ZERO_UUID
from spindle.coordinator.share.delivery import AcknowledgeType
from spindle.protocol.messages.create_topics import CreateTopicsRequest
from spindle.protocol.messages.find_coordinator import FindCoordinatorRequest
from spindle.protocol.messages.metadata import MetadataRequest
from spindle.protocol.messages.produce import ProduceRequest
from spindle.protocol.messages.share_acknowledge import ShareAcknowledgeRequest
from spindle.protocol.messages.share_fetch import ShareFetchRequest
from spindle.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from spindle.protocol.records.builder import SimpleRecord, build_batch
from verification.fuzz.load_clients import PlayerMove, play
from verification.fuzz.wire import Finding, RawConnection

TOPIC: Final = "workers"
"""A topic of their own, so that only they delete its records or change its state."""
_GROUP: Final = "fuzz-workers"
_MEMBERS: Final = tuple(f"worker-{number}" for number in range(4))
_PARTITIONS: Final = (0, 1)
_PLAYERS: Final = 6
_NAMED_PRODUCE: Final = 9
_MAX_WAIT_MS: Final = 200
_PAUSE_S: Final = 0.1
_MAX_KNOWN: Final = 12
_INT64_MAX: Final = 2**63 - 1
_DONE: Final = (AcknowledgeType.GAP, AcknowledgeType.ACCEPT, AcknowledgeType.REJECT)


class _Held(NamedTuple):
    """Records (inclusive) that a member has acquired at some time."""

    partition: int
    first: int
    last: int


class _Acknowledged(NamedTuple):
    """One range of an acknowledgement."""

    partition: int
    first: int
    last: int
    types: Sequence[int]

    def done(self) -> Iterable[int]:
        """Yield the offsets that must not come again once this is confirmed."""
        for place, offset in enumerate(range(self.first, self.last + 1)):
            if self.types[place if len(self.types) > 1 else 0] in _DONE:
                yield offset


class DeliveryChecks:
    """The deliveries and confirmed acknowledgements of a group, in the order of the answers.

    An answer is compared with those only that came before its request was sent.
    """

    def __init__(self) -> None:
        self.delivered = 0
        self.confirmed = 0
        self._moment = 0
        self._done: dict[tuple[int, int], int] = {}
        self._counts: dict[tuple[int, int], tuple[int, int]] = {}

    def now(self) -> int:
        """Return a number that rises with each answer."""
        self._moment += 1
        return self._moment

    def confirm(self, partition: int, offsets: Iterable[int]) -> None:
        """Note that records were acknowledged with success."""
        moment = self.now()
        for offset in offsets:
            self._done.setdefault((partition, offset), moment)
            self.confirmed += 1

    def deliver(self, partition: int, offsets: Iterable[int], count: int, sent_at: int) -> None:
        """Check and note a delivery, whose request was sent at the moment `sent_at`.

        Raises:
            Finding: a record was done before, or its delivery count has not risen.
        """
        moment = self.now()
        for offset in offsets:
            where = (partition, offset)
            self.delivered += 1
            if self._done.get(where, moment) < sent_at:
                raise Finding(
                    f"offset {offset} of {TOPIC}-{partition} was delivered again after its "
                    "acknowledgement was confirmed"
                )
            noted_at, before = self._counts.get(where, (moment, 0))
            if noted_at < sent_at and count <= before:
                raise Finding(
                    f"offset {offset} of {TOPIC}-{partition} was delivered with count {count} "
                    f"after count {before}"
                )
            self._counts[where] = moment, max(count, before)


class HostileWorkers:
    """All members of a share group, on a few connections."""

    def __init__(self, host: str, port: int, seed: int) -> None:
        self.checks = DeliveryChecks()
        self._host = host
        self._port = port
        self._random = Random(f"{seed}: workers")
        self._topic_id = ZERO_UUID
        self._held: dict[str, deque[_Held]] = {
            member: deque(maxlen=_MAX_KNOWN) for member in _MEMBERS
        }
        self._session_epochs: dict[str, int] = dict.fromkeys(_MEMBERS, 0)
        self._member_epochs: dict[str, int] = dict.fromkeys(_MEMBERS, 0)

    async def play(self, is_over: Callable[[], bool]) -> None:
        """Send requests until it is over.

        Raises:
            Finding: a request was not answered in time, or a delivery was wrong.
        """
        client = await RawConnection.connect(self._host, self._port)
        try:
            await self._create_topic(client)
            await self._find_coordinator(client, is_over)
        finally:
            client.close()
        await play(self._host, self._port, _PLAYERS, self._random, self._next_move, is_over)

    async def _create_topic(self, client: RawConnection) -> None:
        topic = CreateTopicsRequest.CreatableTopic
        wanted = topic(name=TOPIC, num_partitions=len(_PARTITIONS), replication_factor=1)
        await client.ask(CreateTopicsRequest(timeout_ms=10_000, topics=[wanted]))
        asked = MetadataRequest.MetadataRequestTopic(name=TOPIC)
        response = await client.ask(
            MetadataRequest(topics=[asked], allow_auto_topic_creation=False)
        )
        self._topic_id = response.topics[0].topic_id

    async def _find_coordinator(self, client: RawConnection, is_over: Callable[[], bool]) -> None:
        """Ask for the coordinator of the group until there is one; the first question creates the
        topic of the offsets."""
        request = FindCoordinatorRequest(coordinator_keys=[_GROUP])
        has_none = True
        while has_none and not is_over():
            response = await client.ask(request)
            has_none = bool(response.coordinators[0].error_code)
            await asyncio.sleep(_PAUSE_S if has_none else 0)

    def _next_move(self) -> PlayerMove:
        member = self._random.choice(_MEMBERS)
        pick = self._random.random()
        if pick < 0.15:
            return self._produce()
        if pick < 0.3:
            return self._heartbeat(member)
        if pick < 0.65:
            return self._fetch(member)
        return self._acknowledge(member)

    # ------------------------------------------------------------ requests

    def _produce(self) -> PlayerMove:
        records = build_batch(
            [SimpleRecord(value=b"v", timestamp_ms=1_700_000_000_000)]
            * self._random.choice((1, 5, 40))
        )
        data = ProduceRequest.TopicProduceData
        part = data.PartitionProduceData(index=self._random.choice(_PARTITIONS), records=records)
        request = ProduceRequest(
            acks=-1, timeout_ms=1_000, topic_data=[data(name=TOPIC, partition_data=[part])]
        )
        return PlayerMove(request, _NAMED_PRODUCE, lambda _: None)

    def _heartbeat(self, member: str) -> PlayerMove:
        epoch = self._member_epochs[member]
        if self._random.random() < 0.1:
            epoch = self._random.choice((-1, -2, 0, epoch + 1, 2**31 - 1))
        request = ShareGroupHeartbeatRequest(
            group_id=_GROUP,
            member_id=member,
            member_epoch=epoch,
            subscribed_topic_names=[TOPIC] if epoch == 0 else None,
        )

        def learn(response: Any) -> None:
            self._member_epochs[member] = 0 if response.error_code else response.member_epoch

        return PlayerMove(request, None, learn)

    def _next_session_epoch(self, member: str) -> int:
        if self._random.random() < 0.05:
            return self._random.choice((-1, 0, 7, -(2**31), 2**31 - 1))
        epoch = self._session_epochs[member]
        self._session_epochs[member] = epoch + 1
        return epoch

    def _fetch(self, member: str) -> PlayerMove:
        random = self._random
        epoch = self._next_session_epoch(member)
        ranges = self._ranges(member) if epoch and random.random() < 0.4 else []
        topic = ShareFetchRequest.FetchTopic
        batch = topic.FetchPartition.AcknowledgementBatch
        is_renewal = random.random() < 0.05
        request = ShareFetchRequest(
            group_id=_GROUP,
            member_id=member,
            share_session_epoch=epoch,
            max_wait_ms=0 if is_renewal else random.choice((0, 1, _MAX_WAIT_MS)),
            min_bytes=0 if is_renewal else random.choice((0, 1, 2**31 - 1)),
            max_bytes=0 if is_renewal else random.choice((1, 1 << 20, 2**31 - 1)),
            max_records=0 if is_renewal else random.choice((1, 3, 500, 2**31 - 1, -1)),
            batch_size=random.choice((1, 500, -1)),
            share_acquire_mode=random.choice((0, 1, 1, 7)),
            is_renew_ack=is_renewal,
            topics=[
                topic(
                    topic_id=self._topic_id,
                    partitions=[
                        topic.FetchPartition(
                            partition_index=index,
                            acknowledgement_batches=[
                                batch(
                                    first_offset=one.first,
                                    last_offset=one.last,
                                    acknowledge_types=list(one.types),
                                )
                                for one in ranges
                                if one.partition == index
                            ],
                        )
                        for index in _PARTITIONS
                    ],
                )
            ],
        )
        sent_at = self.checks.now()
        return PlayerMove(request, None, partial(self._learn_fetch, member, ranges, sent_at))

    def _acknowledge(self, member: str) -> PlayerMove:
        ranges = self._ranges(member)
        topic = ShareAcknowledgeRequest.AcknowledgeTopic
        kind = topic.AcknowledgePartition
        request = ShareAcknowledgeRequest(
            group_id=_GROUP,
            member_id=member,
            share_session_epoch=self._next_session_epoch(member),
            is_renew_ack=self._random.random() < 0.1,
            topics=[
                topic(
                    topic_id=self._topic_id,
                    partitions=[
                        kind(
                            partition_index=index,
                            acknowledgement_batches=[
                                kind.AcknowledgementBatch(
                                    first_offset=one.first,
                                    last_offset=one.last,
                                    acknowledge_types=list(one.types),
                                )
                                for one in ranges
                                if one.partition == index
                            ],
                        )
                        for index in _PARTITIONS
                    ],
                )
            ],
        )
        return PlayerMove(request, None, partial(self._learn_acknowledge, member, ranges))

    def _ranges(self, member: str) -> list[_Acknowledged]:
        random = self._random
        owner = member if random.random() < 0.7 else random.choice(_MEMBERS)
        held = self._held[owner]
        if not held or random.random() < 0.1:
            return [self._invalid_range() for _ in range(random.choice((1, 2, 200)))]
        chosen = [held[-1]] if random.random() < 0.7 else [random.choice(held)]
        return [self._types(*one) for one in chosen]

    def _types(self, partition: int, first: int, last: int) -> _Acknowledged:
        random = self._random
        pick = random.random()
        if pick < 0.5:
            return _Acknowledged(partition, first, last, [1])
        if pick < 0.7:
            types = [random.choice((0, 1, 2, 3)) for _ in range(first, last + 1)]
            return _Acknowledged(partition, first, last, types)
        if pick < 0.9:
            return _Acknowledged(partition, first, last, [random.choice((2, 2, 3, 4))])
        strange = random.choice(([], [9], [-128], [1] * (last - first + 2), [2] * 20_000))
        return _Acknowledged(partition, first, last, strange)

    def _invalid_range(self) -> _Acknowledged:
        random = self._random
        first, last = random.choice(
            (
                (0, _INT64_MAX),
                (-(2**63), _INT64_MAX),
                (-5, -1),
                (_INT64_MAX, _INT64_MAX),
                (9, 3),
                (1 << 40, (1 << 40) + 2),
            )
        )
        partition = random.choice((0, 1, 7, -1))
        return _Acknowledged(partition, first, last, random.choice(([1], [2], [], [1] * 3)))

    # ------------------------------------------------------------ answers

    def _learn_fetch(
        self, member: str, ranges: list[_Acknowledged], sent_at: int, response: Any
    ) -> None:
        if not self._has_session(member, response):
            return
        for topic in response.responses:
            for part in topic.partitions:
                self._confirm(ranges, part.partition_index, part.acknowledge_error_code)
                for first, last, count in (
                    (a.first_offset, a.last_offset, a.delivery_count) for a in part.acquired_records
                ):
                    index = part.partition_index
                    self._held[member].append(_Held(index, first, last))
                    self.checks.deliver(index, range(first, last + 1), count, sent_at)

    def _learn_acknowledge(self, member: str, ranges: list[_Acknowledged], response: Any) -> None:
        if not self._has_session(member, response):
            return
        for topic in response.responses:
            for part in topic.partitions:
                self._confirm(ranges, part.partition_index, part.error_code)

    def _has_session(self, member: str, response: Any) -> bool:
        if response.error_code:
            self._session_epochs[member] = 0
        return not response.error_code

    def _confirm(self, ranges: list[_Acknowledged], partition: int, error_code: int) -> None:
        if error_code != ErrorCode.NONE:
            return
        for one in ranges:
            if one.partition == partition and one.last - one.first < 1_000_000 and one.first >= 0:
                self.checks.confirm(partition, one.done())
