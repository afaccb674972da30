"""The fetcher of a follower: what to fetch from one leader, and what each answer asks for.

A pure state machine. `next_request` gives the fetch to send; `on_response` turns its answer into
work on logs and requests for offsets; `on_done` takes the result of the work. A partition has one
piece of work at a time and is not fetched meanwhile. Truncation needs no request of its own: every
fetch names the epoch of the last record, and the leader answers where the logs part (KIP-595).
A log with a gap that an unclean stop may have made is fetched from the beginning of the gap first:
records of the leader within the gap are lost here, and the log is truncated to fetch them again.

Time is in milliseconds of any clock that does not go back.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from spindle.common.errors import CorruptRecords, ErrorCode
from spindle.common.ids import TopicIdPartition
from spindle.common.ports import Bytes
from spindle.log.log_values import Gap
from spindle.protocol.messages.fetch import FetchRequest, FetchResponse
from spindle.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from spindle.protocol.records.batch import batches, check_crc
from spindle.protocol.sentinels import NO_LAG
from spindle.replication.fetch_session_handler import (
    FetchSessionHandler,
    NextFetch,
    Position,
)
from spindle.replication.follower_log import (
    Append,
    ConfirmGaps,
    LogPosition,
    LogWork,
    StartOver,
    TruncateTo,
    TruncateToEpoch,
)

logger = logging.getLogger(__name__)

PartitionData = FetchResponse.FetchableTopicResponse.PartitionData

_FIRST_DELAY_PART: Final = 16


@dataclass(frozen=True, slots=True)
class FetcherSettings:
    """`replica.fetch.*` of the property file; `backoff_ms` is the longest pause after an error."""

    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    partition_max_bytes: int
    backoff_ms: int


class FollowedPartition:
    """One partition that is fetched in one leader epoch.

    Attributes:
        lag: the leader's high watermark minus the log end here, at least 0; -1 before the first
            answer.
        is_asked: a request that names the partition was made, and nothing ended that since.
        has_work: a step for it is running; it is not fetched meanwhile.
        delay_ms: the last pause after an error; 0 after a success.
        delayed_until_ms: the end of a pause; None if there is none.
    """

    __slots__ = (
        "delay_ms",
        "delayed_until_ms",
        "has_work",
        "is_asked",
        "is_throttled",
        "key",
        "lag",
        "leader_epoch",
        "position",
        "topic",
    )

    def __init__(
        self, topic: str, key: TopicIdPartition, leader_epoch: int, position: LogPosition
    ) -> None:
        self.topic = topic
        self.key = key
        self.leader_epoch = leader_epoch
        self.position = position
        self.lag = NO_LAG
        self.is_asked = False
        self.has_work = False
        self.is_throttled = False
        self.delay_ms = 0
        self.delayed_until_ms: int | None = None

    def __repr__(self) -> str:
        return f"{self.topic}-{self.key.partition} in epoch {self.leader_epoch}"

    @property
    def is_caught_up(self) -> bool:
        """Return True if it had everything committed when the leader last answered."""
        return self.lag == 0


class FindLeaderOffsets(NamedTuple):
    """Ask the leader where its log begins and ends: it does not have the fetch offset."""


Work: TypeAlias = LogWork | FindLeaderOffsets


class Step(NamedTuple):
    """Work to be done for a partition; `on_done`, `on_refused` or `on_failed` takes its end."""

    partition: FollowedPartition
    work: Work


class Failed(NamedTuple):
    """Why a partition is not followed until its leadership changes."""

    leader_epoch: int
    reason: str


class Fetcher:
    """The partitions that are fetched from one broker over one connection."""

    def __init__(self, settings: FetcherSettings) -> None:
        self._settings = settings
        self._session = FetchSessionHandler()
        self._partitions: dict[TopicIdPartition, FollowedPartition] = {}
        self._delayed: dict[TopicIdPartition, FollowedPartition] = {}
        self._throttled: dict[TopicIdPartition, FollowedPartition] = {}
        self.failed: dict[TopicIdPartition, Failed] = {}
        self.bytes_in = 0

    def __len__(self) -> int:
        return len(self._partitions)

    def __iter__(self) -> Iterator[FollowedPartition]:
        return iter(list(self._partitions.values()))

    @property
    def max_lag(self) -> int:
        """Return the largest lag, in records."""
        return max((partition.lag for partition in self._partitions.values()), default=0)

    def lag(self, key: TopicIdPartition) -> int:
        """Return the lag of a partition; -1 if it is not fetched, or not answered yet."""
        partition = self._partitions.get(key)
        return NO_LAG if partition is None else partition.lag

    def follows(self, partition: FollowedPartition) -> bool:
        """Return True unless the partition was removed or replaced."""
        return self._partitions.get(partition.key) is partition

    # -- what is followed

    def add(self, partition: FollowedPartition, *, is_same_epoch: bool = False) -> None:
        """Begin to fetch the partition, in place of an earlier epoch of it.

        With `is_same_epoch` it was fetched before in this epoch: its leader would keep silent about
        offsets that have not changed, and its lag would stay unknown.
        """
        self.remove(partition.key)
        if is_same_epoch:
            self._session.mark_response_dropped(partition.key)
        self._partitions[partition.key] = partition
        self._resume_from(partition)

    def remove(self, key: TopicIdPartition) -> None:
        """Stop fetching the partition; drop answers and outcomes that come later."""
        self.failed.pop(key, None)
        self._drop(key)

    def throttle(self, key: TopicIdPartition, is_throttled: bool) -> None:
        """Say whether the partition counts for the follower's quota (KIP-73)."""
        partition = self._partitions.get(key)
        if partition is None:
            return
        partition.is_throttled = is_throttled
        if is_throttled:
            self._throttled[key] = partition
        elif self._throttled.pop(key, None) is not None:
            self._resume_from(partition)

    def _drop(self, key: TopicIdPartition) -> None:
        self._session.forget(key)
        self._partitions.pop(key, None)
        self._delayed.pop(key, None)
        self._throttled.pop(key, None)

    # -- asking

    def next_request(
        self, broker_epoch: int, now_ms: int, is_quota_exceeded: bool = False
    ) -> FetchRequest | None:
        """Return the fetch to send; None if there is nothing to fetch now (see `wake_ms`).

        Args:
            broker_epoch: of this broker's registration (KIP-903).
            is_quota_exceeded: leave out throttled partitions that are not caught up.
        """
        for partition in list(self._delayed.values()):
            if partition.delayed_until_ms is None or partition.delayed_until_ms <= now_ms:
                self._resume_from(partition)
        for partition in self._throttled.values():
            self._apply_quota(partition, is_quota_exceeded)
        if not self._session:
            return None
        settings = self._settings
        fetch = self._session.next_fetch()
        for key in fetch.wanted:
            self._partitions[key].is_asked = True
        return FetchRequest(
            # Versions up to 14 have the first of these two fields, later ones the second.
            replica_id=settings.replica_id,
            replica_state=FetchRequest.ReplicaState(
                replica_id=settings.replica_id, replica_epoch=broker_epoch
            ),
            max_wait_ms=settings.max_wait_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.max_bytes,
            session_id=fetch.session_id,
            session_epoch=fetch.session_epoch,
            topics=_wanted_topics(fetch),
            forgotten_topics_data=_forgotten_topics(fetch),
        )

    @property
    def wake_ms(self) -> int | None:
        """Return when the first delayed partition may be fetched again; None if there is none."""
        times = [
            partition.delayed_until_ms
            for partition in self._delayed.values()
            if partition.delayed_until_ms is not None
        ]
        return min(times, default=None)

    @property
    def waits_for_quota(self) -> bool:
        """Return True if partitions are left out until the quota has room again."""
        return any(not partition.is_asked for partition in self._throttled.values())

    def _apply_quota(self, partition: FollowedPartition, is_exceeded: bool) -> None:
        if partition.has_work or partition.delayed_until_ms is not None:
            return
        if is_exceeded and not partition.is_caught_up:
            partition.is_asked = False
            self._session.forget(partition.key)
        elif not partition.is_asked:
            self._resume_from(partition)

    def _resume_from(self, partition: FollowedPartition) -> None:
        """Fetch from where the log stands now."""
        partition.delayed_until_ms = None
        partition.has_work = partition.is_asked = False
        self._delayed.pop(partition.key, None)
        position = partition.position
        self._session.want(
            partition.key,
            Position(
                partition=partition.key.partition,
                current_leader_epoch=partition.leader_epoch,
                fetch_offset=position.fetch_offset,
                last_fetched_epoch=position.last_epoch,
                log_start_offset=position.start_offset,
                partition_max_bytes=self._settings.partition_max_bytes,
            ),
        )

    def _delay(self, partition: FollowedPartition, now_ms: int) -> None:
        """Do not fetch the partition for a while, and longer each time.

        Begin with a short pause: most errors come from a leader whose metadata is a moment behind.
        """
        longest_ms = self._settings.backoff_ms
        first_ms = max(longest_ms // _FIRST_DELAY_PART, 1)
        partition.delay_ms = min(max(2 * partition.delay_ms, first_ms), longest_ms)
        partition.has_work = partition.is_asked = False
        partition.delayed_until_ms = now_ms + partition.delay_ms
        self._delayed[partition.key] = partition
        self._session.forget(partition.key)

    # -- answers

    def on_no_answer(self) -> None:
        """Note that the request or its answer was lost."""
        self._session.on_failure()

    def on_response(self, response: FetchResponse, now_ms: int) -> list[Step] | None:
        """Return the steps that the answer asks for; None if it does not fit the session."""
        if not self._session.on_response(response):
            return None
        steps: list[Step] = []
        for topic in response.responses:
            for data in topic.partitions:
                key = TopicIdPartition(topic.topic_id, data.partition_index)
                partition = self._partitions.get(key)
                if partition is None or not partition.is_asked:
                    # It was added, moved or delayed since the request was made.
                    self._session.mark_response_dropped(key)
                    continue
                work = self._decide(partition, data, now_ms)
                if work is not None:
                    partition.is_asked = False
                    partition.has_work = True
                    steps.append(Step(partition, work))
        return steps

    def _decide(
        self, partition: FollowedPartition, data: PartitionData, now_ms: int
    ) -> Work | None:
        if data.error_code == ErrorCode.NONE:
            return self._take(partition, data)
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return FindLeaderOffsets()
        if data.error_code == ErrorCode.FENCED_LEADER_EPOCH:
            self._fail(partition, "the leader is in a later epoch")
        else:
            self._delay(partition, now_ms)
        return None

    def _take(self, partition: FollowedPartition, data: PartitionData) -> Work | None:
        position = partition.position
        diverging = data.diverging_epoch
        if diverging.epoch >= 0 and diverging.end_offset >= 0:
            return TruncateToEpoch(diverging.epoch, diverging.end_offset)
        records = data.records if data.records is not None else b""
        if position.gap is not None:
            self._session.mark_response_dropped(
                partition.key
            )  # the leader does not send its offsets twice
            return _compare_gap(position.gap, records)
        partition.lag = max(data.high_watermark - position.end_offset, 0)
        is_news = (
            len(records) > 0
            or min(data.high_watermark, position.end_offset) > position.high_watermark
            or data.log_start_offset > position.start_offset
        )
        if not is_news:
            partition.delay_ms = 0
            return None
        return Append(
            position.end_offset,
            partition.leader_epoch,
            records,
            data.high_watermark,
            data.log_start_offset,
        )

    # -- outcomes

    def on_done(self, step: Step, position: LogPosition, now_ms: int) -> None:
        """Continue at the log's position after the work."""
        partition, work = step
        if not self.follows(partition):
            return
        before, partition.position = partition.position, position
        if isinstance(work, Append):
            if len(work.records):
                self.bytes_in += len(work.records)
            partition.lag = max(work.high_watermark - position.end_offset, 0)
        else:
            partition.lag = NO_LAG
            self._session.mark_response_dropped(
                partition.key
            )  # the leader has named its offsets for another log
        if position == before:
            # The log has not changed, so the same request would get the same answer at once.
            self._delay(partition, now_ms)
            return
        partition.delay_ms = 0
        if position == before._replace(high_watermark=position.high_watermark):
            self._keep_position(partition)
        else:
            self._resume_from(partition)

    def on_refused(self, step: Step, now_ms: int) -> None:
        """Ask again after a pause: what the leader sent cannot be used."""
        if self.follows(step.partition):
            self._delay(step.partition, now_ms)

    def on_failed(self, step: Step, reason: str) -> None:
        """Give the partition up until its leadership changes: the work cannot be done."""
        if self.follows(step.partition):
            self._fail(step.partition, reason)

    def _keep_position(self, partition: FollowedPartition) -> None:
        """Keep the fetch position; the leader's session already has it."""
        partition.has_work = False
        partition.is_asked = True

    def _fail(self, partition: FollowedPartition, reason: str) -> None:
        self._drop(partition.key)
        self.failed[partition.key] = Failed(partition.leader_epoch, reason)

    # -- where the leader's log begins and ends

    def offsets_request(
        self, partitions: Sequence[FollowedPartition], timestamp: int
    ) -> ListOffsetsRequest:
        """Return a request for the LATEST or EARLIEST offsets of these partitions."""
        topics: dict[str, ListOffsetsRequest.ListOffsetsTopic] = {}
        for partition in partitions:
            topic = topics.setdefault(
                partition.topic, ListOffsetsRequest.ListOffsetsTopic(name=partition.topic)
            )
            topic.partitions.append(
                ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition(
                    partition_index=partition.key.partition,
                    current_leader_epoch=partition.leader_epoch,
                    timestamp=timestamp,
                )
            )
        return ListOffsetsRequest(
            replica_id=self._settings.replica_id, topics=list(topics.values())
        )

    def on_offsets(
        self,
        asked: Sequence[FollowedPartition],
        latest: ListOffsetsResponse,
        earliest: ListOffsetsResponse,
        now_ms: int,
    ) -> list[Step]:
        """Return the steps for partitions whose fetch offset the leader does not have."""
        ends, starts = _offsets(latest), _offsets(earliest)
        steps = []
        for partition in asked:
            name = (partition.topic, partition.key.partition)
            end_offset, start_offset = ends.get(name, -1), starts.get(name, -1)
            if not self.follows(partition):
                continue
            gap = partition.position.gap
            if end_offset < 0 or start_offset < 0:
                self._delay(partition, now_ms)
            elif end_offset < partition.position.end_offset:
                steps.append(Step(partition, TruncateTo(end_offset)))
            elif start_offset > partition.position.end_offset:
                steps.append(Step(partition, StartOver(start_offset)))
            elif gap is not None and start_offset > gap.first_offset:
                steps.append(Step(partition, ConfirmGaps(start_offset)))
            else:
                self._delay(partition, now_ms)
        return steps


def _compare_gap(gap: Gap, records: Bytes) -> Work:
    """Compare the leader's records from the beginning of a gap; return what to do with the log.

    Compaction may have left a batch without records there: nothing is missing then.
    """
    next_offset = gap.first_offset
    try:
        for position, header in batches(records):
            check_crc(records, position, header)
            if header.base_offset >= gap.end_offset:
                return ConfirmGaps(header.base_offset)
            if header.record_count:
                return TruncateTo(gap.first_offset)
            next_offset = header.next_offset
    except CorruptRecords as error:
        logger.warning(
            "the leader sent malformed records at offset %d: %s", gap.first_offset, error
        )
    if next_offset > gap.first_offset:
        return ConfirmGaps(next_offset)
    return FindLeaderOffsets()  # the leader's log ends here, or it sends no records now


def _offsets(response: ListOffsetsResponse) -> dict[tuple[str, int], int]:
    return {
        (topic.name, answer.partition_index): answer.offset
        for topic in response.topics
        for answer in topic.partitions
        if answer.error_code == ErrorCode.NONE
    }


def _wanted_topics(fetch: NextFetch) -> list[FetchRequest.FetchTopic]:
    topics: dict[bytes, FetchRequest.FetchTopic] = {}
    for key, position in fetch.wanted.items():
        topic = topics.get(key.topic_id)
        if topic is None:
            topic = topics[key.topic_id] = FetchRequest.FetchTopic(topic_id=key.topic_id)
        topic.partitions.append(position)
    return list(topics.values())


def _forgotten_topics(fetch: NextFetch) -> list[FetchRequest.ForgottenTopic]:
    topics: dict[bytes, FetchRequest.ForgottenTopic] = {}
    for key in fetch.forgotten:
        topic = topics.get(key.topic_id)
        if topic is None:
            topic = topics[key.topic_id] = FetchRequest.ForgottenTopic(topic_id=key.topic_id)
        topic.partitions.append(key.partition)
    return list(topics.values())
