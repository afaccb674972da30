"""Workers of a share group (KIP-932): they accept, release, reject, renew, and forget records.

A worker that forgets a record holds it until its lock expires. All deliveries are compared with the
acknowledgements that the brokers have confirmed.
"""

import asyncio
from collections.abc import Callable, Iterable
from random import Random
from typing import Any, Final, NamedTuple

from spindle.common.errors import ErrorCode
from spindle.common.uuids import Uuid, uuid_text
from spindle.coordinator.share.delivery import AcknowledgeType
from spindle.metadata.configs import GROUP_RESOURCE
from spindle.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from spindle.protocol.messages.share_acknowledge import ShareAcknowledgeRequest
from spindle.protocol.messages.share_fetch import ShareFetchRequest
from spindle.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from spindle.raft.ready import Destination
from spindle.runtime.peers.port import PeerUnavailable
from verification.simulation.client import SimulatedClient
from verification.simulation.coordinator_link import MOVED, OF_GROUPS, CoordinatorLink
from verification.simulation.record_oracle import RecordOracle
from verification.simulation.topic import Topic
from verification.simulation.verdict import Verdict

GROUP_ID: Final = "workers"
DELIVERY_COUNT_LIMIT: Final = 5
"""`group.share.delivery.count.limit`: a record that was delivered so often is archived."""
_JOIN: Final = 0
_MAX_WAIT_MS: Final = 200
_MAX_RECORDS: Final = 20
_FENCED: Final = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)
_ACCEPT, _RELEASE = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE
_REJECT, _RENEW = AcknowledgeType.REJECT, AcknowledgeType.RENEW


class SharedRecord(NamedTuple):
    """A record of a topic."""

    topic_id: Uuid
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"offset {self.offset} of partition {self.partition} of {uuid_text(self.topic_id)}"


class ShareOracle:
    """The deliveries and confirmed acknowledgements of the group.

    A delivery is compared with confirmations only that came before its request was sent.
    """

    def __init__(self, verdict: Verdict) -> None:
        self._verdict = verdict
        self._counts: dict[SharedRecord, int] = {}
        self._finished: set[SharedRecord] = set()
        """Accepted or rejected; a broker may have stored that without a confirmation."""
        self._done: dict[SharedRecord, float] = {}
        self._released: dict[SharedRecord, tuple[float, int]] = {}

    def delivered(self, worker: str, place: SharedRecord, count: int, sent_s: float) -> None:
        """Check a delivery whose request was sent at `sent_s`."""
        done_s = self._done.get(place)
        self._verdict.check(
            done_s is None or done_s >= sent_s,
            f"{worker} got {place} again, after its acknowledgement was confirmed",
        )
        released_s, before = self._released.get(place, (sent_s, 0))
        self._verdict.check(
            released_s >= sent_s or count > before,
            f"{worker} got {place} with delivery count {count}, but it was released with {before}",
        )
        self._verdict.check(
            1 <= count <= DELIVERY_COUNT_LIMIT,
            f"{worker} got {place} with delivery count {count}",
        )
        self._counts[place] = max(count, self._counts.get(place, 0))

    def acknowledges(self, place: SharedRecord, kind: AcknowledgeType) -> None:
        """Note an acknowledgement that is about to be sent."""
        if kind in (_ACCEPT, _REJECT):
            self._finished.add(place)

    def confirmed(
        self, place: SharedRecord, kind: AcknowledgeType, count: int, now_s: float
    ) -> None:
        """Note an acknowledgement of a delivery that a broker has confirmed."""
        if kind in (_ACCEPT, _REJECT):
            self._done.setdefault(place, now_s)
        elif kind is _RELEASE:
            self._released[place] = now_s, max(count, self._released.get(place, (0.0, 0))[1])

    def missing(self, topic: Topic, index: int, offsets: Iterable[int]) -> list[int]:
        """Return the offsets that no worker has finished, nor got as often as the group allows."""
        return [
            offset
            for offset in offsets
            if (place := SharedRecord(topic.topic_id, index, offset)) not in self._finished
            and self._counts.get(place, 0) < DELIVERY_COUNT_LIMIT
        ]


class _Held(NamedTuple):
    place: SharedRecord
    delivery_count: int


class _Session:
    """The share session of a worker at one broker."""

    def __init__(self) -> None:
        self.epoch = 0
        self.partitions: set[tuple[Uuid, int]] = set()
        self.held: list[_Held] = []

    def next_epoch(self) -> int:
        self.epoch += 1
        return self.epoch - 1


class ShareWorker:
    """One member of the group, through several lives."""

    def __init__(
        self,
        name: str,
        client: SimulatedClient,
        topics: list[str],
        oracle: ShareOracle,
        random: Random,
        verdict: Verdict,
    ) -> None:
        """Make a worker that subscribes to topics by their names."""
        self.name = name
        self._client = client
        self._link = CoordinatorLink(client, GROUP_ID, OF_GROUPS)
        self._topics = topics
        self._oracle = oracle
        self._random = random
        self._verdict = verdict
        self._lives = 0
        self._epoch = _JOIN
        self._assigned: set[tuple[Uuid, int]] = set()
        self._names: dict[Uuid, str] = {}
        self._sessions: dict[Destination, _Session] = {}

    @property
    def member_id(self) -> str:
        """The id that it has made up for its present life."""
        return f"{self.name}.{self._lives}"

    async def run(self, is_rough: Callable[[], bool], now_s: Callable[[], float]) -> None:
        """Work forever; while it `is_rough`, die at times and forget records."""
        while True:
            if is_rough() and self._random.random() < 0.02:
                self._die()
            await self._heartbeat()
            for leader, partitions in (await self._leaders()).items():
                await self._fetch(leader, partitions, now_s)
                await self._acknowledge(leader, now_s, is_rough=is_rough())
            await asyncio.sleep(self._random.uniform(0.05, 0.3))

    def _die(self) -> None:
        self._lives += 1
        self._epoch = _JOIN
        self._assigned.clear()
        self._sessions.clear()

    # -- the group

    async def _heartbeat(self) -> None:
        answer = await self._link.ask(
            ShareGroupHeartbeatRequest(
                group_id=GROUP_ID,
                member_id=self.member_id,
                member_epoch=self._epoch,
                subscribed_topic_names=self._topics if self._epoch == _JOIN else None,
            )
        )
        if answer is None:
            return
        code = answer.error_code
        if code in MOVED:
            self._link.forget()
        elif code in _FENCED:
            self._epoch = _JOIN
        elif code not in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT):
            self._verdict.violated(f"{self.member_id} was told {ErrorCode(code).name}")
        if code:
            return
        self._epoch = answer.member_epoch
        if answer.assignment is not None:
            self._assigned = {
                (row.topic_id, index)
                for row in answer.assignment.topic_partitions
                for index in row.partitions
            }

    async def _leaders(self) -> dict[Destination, set[tuple[Uuid, int]]]:
        """Return the assigned partitions by leader, and nothing of topics without a known one."""
        for name in self._topics:
            if not any(self._names.get(topic_id) == name for topic_id, _ in self._assigned):
                topic_id = await self._client.topic_id(name)
                if topic_id is not None:
                    self._names[topic_id] = name
        by_leader: dict[Destination, set[tuple[Uuid, int]]] = {}
        for topic_id, index in sorted(self._assigned):
            topic = self._names.get(topic_id)
            leader = None if topic is None else await self._client.leader(topic_id, topic, index)
            if leader is not None:
                by_leader.setdefault(leader.destination, set()).add((topic_id, index))
        return by_leader

    # -- records

    async def _fetch(
        self,
        leader: Destination,
        partitions: set[tuple[Uuid, int]],
        now_s: Callable[[], float],
    ) -> None:
        session = self._sessions.setdefault(leader, _Session())
        forgotten = session.partitions - partitions
        session.partitions = set(partitions)
        topic, gone = ShareFetchRequest.FetchTopic, ShareFetchRequest.ForgottenTopic
        request = ShareFetchRequest(
            group_id=GROUP_ID,
            member_id=self.member_id,
            share_session_epoch=session.next_epoch(),
            max_wait_ms=_MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=self._random.randint(1, _MAX_RECORDS),
            share_acquire_mode=self._random.randint(0, 1),
            topics=[
                topic(
                    topic_id=topic_id,
                    partitions=[topic.FetchPartition(partition_index=index)],
                )
                for topic_id, index in sorted(partitions)
            ],
            forgotten_topics_data=[
                gone(topic_id=topic_id, partitions=[index]) for topic_id, index in sorted(forgotten)
            ],
        )
        sent_s = now_s()
        answer = await self._ask(leader, request)
        if answer is None:
            return
        for row in answer.responses:
            for part in row.partitions:
                if part.error_code:
                    self._check_code(part.error_code)
                    self._client.forget(row.topic_id, part.partition_index)
                for acquired in part.acquired_records:
                    for offset in range(acquired.first_offset, acquired.last_offset + 1):
                        place = SharedRecord(row.topic_id, part.partition_index, offset)
                        count = acquired.delivery_count
                        self._oracle.delivered(self.member_id, place, count, sent_s)
                        session.held.append(_Held(place, count))

    async def _acknowledge(
        self, leader: Destination, now_s: Callable[[], float], *, is_rough: bool
    ) -> None:
        """Acknowledge what is held, each record in its own way."""
        session = self._sessions.get(leader)
        if session is None or not session.held:
            return
        held, session.held = session.held, []
        kinds = [self._kind(is_rough=is_rough) for _ in held]
        is_renewal = _RENEW in kinds
        session.held = [one for one, kind in zip(held, kinds, strict=True) if kind is _RENEW]
        chosen = [(one, kind) for one, kind in zip(held, kinds, strict=True) if kind is not None]
        topic = ShareAcknowledgeRequest.AcknowledgeTopic
        partition = topic.AcknowledgePartition
        by_partition: dict[tuple[Uuid, int], list[tuple[_Held, AcknowledgeType]]] = {}
        for one, kind in sorted(chosen):
            self._oracle.acknowledges(one.place, kind)
            by_partition.setdefault((one.place.topic_id, one.place.partition), []).append(
                (one, kind)
            )
        request = ShareAcknowledgeRequest(
            group_id=GROUP_ID,
            member_id=self.member_id,
            share_session_epoch=session.next_epoch(),
            is_renew_ack=is_renewal,
            topics=[
                topic(
                    topic_id=topic_id,
                    partitions=[
                        partition(
                            partition_index=index,
                            acknowledgement_batches=[
                                partition.AcknowledgementBatch(
                                    first_offset=one.place.offset,
                                    last_offset=one.place.offset,
                                    acknowledge_types=[kind],
                                )
                                for one, kind in rows
                            ],
                        )
                    ],
                )
                for (topic_id, index), rows in by_partition.items()
            ],
        )
        answer = await self._ask(leader, request)
        if answer is None:
            return
        for row in answer.responses:
            for part in row.partitions:
                if part.error_code:
                    self._check_code(part.error_code)
                    continue
                for one, kind in by_partition[row.topic_id, part.partition_index]:
                    self._oracle.confirmed(one.place, kind, one.delivery_count, now_s())

    def _kind(self, *, is_rough: bool) -> AcknowledgeType | None:
        """Return how to acknowledge a record; None to forget it."""
        if not is_rough:
            return _ACCEPT
        pick = self._random.random()
        if pick < 0.6:
            return _ACCEPT
        if pick < 0.8:
            return _RELEASE
        if pick < 0.85:
            return _REJECT
        return _RENEW if pick < 0.9 else None

    async def _ask(self, leader: Destination, request: Any) -> Any:
        """Return the answer; without one, or with an error, the session has to be opened again."""
        try:
            answer = await self._client.ask(leader, request)
        except PeerUnavailable:
            answer = None
        if answer is not None and answer.error_code:
            self._check_code(answer.error_code)
            answer = None
        if answer is None:
            self._sessions.pop(leader, None)
            for topic_id, index in self._assigned:
                self._client.forget(topic_id, index)
        return answer

    def _check_code(self, code: int) -> None:
        self._verdict.check(
            code != ErrorCode.UNKNOWN_SERVER_ERROR, f"{self.member_id} was told {code}"
        )


async def begin_with_the_first_record(client: SimulatedClient) -> None:
    """Set `share.auto.offset.reset=earliest` for the group, until that succeeds."""
    kind = IncrementalAlterConfigsRequest.AlterConfigsResource
    config = kind.AlterableConfig(
        name="share.auto.offset.reset", config_operation=0, value="earliest"
    )
    request = IncrementalAlterConfigsRequest(
        resources=[kind(resource_type=GROUP_RESOURCE, resource_name=GROUP_ID, configs=[config])]
    )
    while True:
        try:
            answer = await client.ask_any(request)
        except PeerUnavailable:
            answer = None
        if answer is not None and not answer.responses[0].error_code:
            return
        await client.pause()


def undelivered(topics: list[Topic], oracle: ShareOracle, records: RecordOracle) -> str | None:
    """Return which committed records wait for a worker; None if there are none.

    Of topics that lose old records, only those at the end are certain to be delivered, so they do
    not count; nor do topics whose committed records an unclean election may lose.
    """
    for topic in topics:
        if topic.is_deleted or topic.may_lose or topic.may_trim:
            continue
        for index in range(topic.partitions):
            partition = records.of(topic.topic_id, topic.name, index)
            if partition.is_compacted:
                continue
            missing = oracle.missing(topic, index, range(partition.end_offset))
            if missing:
                return f"the workers lack offsets {missing[:5]} of {partition}"
    return None
