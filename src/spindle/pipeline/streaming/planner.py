"""Plan the batches of a stream on the driver: ask the brokers, then let the pure parts decide."""

import logging
import re
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Final, TypeVar

from spindle.client.blocking.client import WireClient
from spindle.common.errors import ApiError
from spindle.common.ids import TopicPartition
from spindle.common.uuids import ZERO_UUID, Uuid
from spindle.pipeline.brokers.planning import (
    bytes_per_offset,
    measured_bytes_per_offset,
    select_partitions,
    settled_plan,
    starting_offsets,
    suitable_tasks,
)
from spindle.pipeline.brokers.ranges import OffsetRange, size_of
from spindle.pipeline.errors import DataLoss
from spindle.pipeline.options.topics import Assign, Selection, Subscribe, SubscribePattern
from spindle.pipeline.streaming.admission import Backlog, admitted_ends, must_wait
from spindle.pipeline.streaming.batch_cut import (
    BatchCut,
    CutByBytes,
    CutByCount,
    by_partition,
    cut_batch,
    topic_averages,
)
from spindle.pipeline.streaming.continuity import (
    AvailableOffsets,
    Continuation,
    after_retention,
    check_checkpoint,
    continue_from,
    start_of_first_batch,
    starts_of,
    until_target,
)
from spindle.pipeline.streaming.offset_commits import OffsetCommits
from spindle.pipeline.streaming.options import StreamReadOptions
from spindle.pipeline.streaming.position import StreamPosition
from spindle.protocol.sentinels import EARLIEST, LATEST

_LOG: Final = logging.getLogger(__name__)
_MS: Final = 1000
T = TypeVar("T")


class StreamPlanner:
    """Decides what the batches of one query read.

    Args:
        sleep, clock: As in `time`, in seconds.
    """

    def __init__(
        self,
        options: StreamReadOptions,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.options = options
        self._selection = options.read.selection
        self._sleep = sleep
        self._clock = clock
        self._client = WireClient(options.read.client)
        self._commits = OffsetCommits(options)
        self._target: AvailableOffsets | None = None
        self._last_batch_at: float | None = None
        self.latest: AvailableOffsets | None = None
        """The partitions and ends that the last trigger saw; None before the first one."""

    def close(self) -> None:
        """Close all connections."""
        self._client.close()
        self._commits.close()

    def set_target(self) -> None:
        """Read only what the brokers hold now (Trigger.AvailableNow).

        Raises:
            ValueError, ApiError, ClientError: as in `next_end`.
        """
        # Which topics have to exist depends on the checkpoint; `next_end` knows it.
        self._target = self._settled(lambda: self._available(named_topics(self._selection)))

    def next_end(self, start: StreamPosition | None, *, is_limited: bool) -> StreamPosition:
        """Return where the batch ends that begins at `start`; `start` again if there is none.

        Args:
            start: None for the first batch of a stream.
            is_limited: Whether the limits of the options hold for this batch.

        Raises:
            ValueError: the options do not fit the partitions, or the checkpoint does not belong
                to this stream.
            DataLoss: records are gone that the stream has not read, and that is an error.
            ApiError, ClientError: the brokers refuse, or cannot be reached.
        """
        if start is None:
            first = self._settled(self._first_position)
            end = self._end_after(first, is_limited)
            return replace(end, first_start=first.offsets)
        # Spark asks for the next batch only after the last one is committed. Its own call for
        # commits does not come for the last batch of Trigger.AvailableNow.
        self._commits.commit(start.offsets)
        return self._end_after(start, is_limited)

    def tasks(
        self, start: StreamPosition | None, end: StreamPosition
    ) -> list[tuple[OffsetRange, ...]]:
        """Return the ranges of each task of a batch; arguments and errors as in `ranges`.

        The cut is that of the checkpoint. A checkpoint of the `kafka` source has none; its batch is
        cut as that source cuts, by options and offsets alone.
        """
        return cut_batch(self.ranges(start, end), end.cut or self._cut_by_count())

    def ranges(self, start: StreamPosition | None, end: StreamPosition) -> list[OffsetRange]:
        """Return the offsets of a batch.

        Args:
            start: None for the first batch of a stream, whose end says where it starts.

        Raises:
            ValueError: the checkpoint does not belong to this stream.
            ApiError, ClientError: the brokers refuse, or cannot be reached.
        """
        wanted = _ranges(start or start_of_first_batch(end), end)
        if wanted:
            view = self._client.metadata(
                sorted({offset_range.partition.topic for offset_range in wanted})
            )
            check_checkpoint(end, view.cluster_id, self._selects)
        return wanted

    def existing(self, ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
        """Return the ranges whose partitions the cluster still has, under the same topic id.

        Raises:
            ApiError, ClientError: the brokers refuse, or cannot be reached.
        """
        wanted = list(ranges)
        topics = self._client.metadata(
            sorted({offset_range.partition.topic for offset_range in wanted})
        ).topics
        return [
            offset_range
            for offset_range in wanted
            if (topic := topics.get(offset_range.partition.topic)) is not None
            and offset_range.topic_id in (ZERO_UUID, topic.topic_id)
            and offset_range.partition.partition in topic.partitions
        ]

    # ------------------------------------------------------------ one batch

    def _end_after(self, start: StreamPosition, is_limited: bool) -> StreamPosition:
        continuation, available = self._confirmed(start)
        self._report(continuation.losses)
        ends = continuation.backlog.end
        if is_limited:
            admitted = self._admitted(continuation)
            if admitted is None:
                return start
            ends = admitted
        end = StreamPosition(
            ends, self._remembered(start) | dict(available.topic_ids), available.cluster_id
        )
        if end.is_at(start):
            return end
        self._last_batch_at = self._clock()
        return replace(end, cut=self._cut(_ranges(start, end)))

    def _cut(self, ranges: list[OffsetRange]) -> BatchCut:
        """Return how a new batch is cut, by the sizes of the logs now."""
        options = self.options.read
        if options.min_partitions is not None or options.max_records_per_partition is not None:
            return self._cut_by_count()
        averages = topic_averages(ranges, bytes_per_offset(self._client, ranges))
        total_bytes = size_of(ranges, by_partition(ranges, averages))
        task_bytes = self.options.task_bytes
        if task_bytes is not None:
            return CutByBytes(max(1, -int(-total_bytes // task_bytes)), averages)
        return CutByBytes(suitable_tasks(options, total_bytes), averages)

    def _cut_by_count(self) -> CutByCount:
        options = self.options.read
        return CutByCount(options.min_partitions, options.max_records_per_partition)

    def _admitted(self, continuation: Continuation) -> dict[TopicPartition, int] | None:
        """Return the ends within the limits, or None if the batch has to wait."""
        limits, backlog = self.options.limits, continuation.backlog
        backlog_bytes = self._size_bytes(backlog) if limits.needs_sizes else 0
        waited_ms = None
        if self._last_batch_at is not None:
            waited_ms = int((self._clock() - self._last_batch_at) * _MS)
        may_wait = self._target is None and not continuation.losses
        if may_wait and must_wait(backlog, limits, backlog_bytes, waited_ms=waited_ms):
            return None
        return dict(admitted_ends(backlog, limits, backlog_bytes))

    def _confirmed(self, start: StreamPosition) -> tuple[Continuation, AvailableOffsets]:
        """Return the continuation of the stream; check a loss a second time."""
        attempts = self.options.read.offset_retries
        while True:
            continuation, available = self._settled(lambda: self._continuation(start))
            if not continuation.losses or attempts == 0:
                return continuation, available
            attempts -= 1
            self._client.forget_metadata()
            self._sleep(self.options.read.offset_retry_interval_ms / _MS)

    def _continuation(self, start: StreamPosition) -> tuple[Continuation, AvailableOffsets]:
        seen_before = {offset.topic for offset in start.offsets} | start.topic_ids.keys()
        available = self._available(seen_before)
        check_checkpoint(start, available.cluster_id, self._selects)
        self.latest = available
        continuation = continue_from(start, available, self._selects)
        if self._target is not None:
            continuation = until_target(continuation, available, self._target)
        unread = [partition for partition, size in continuation.backlog.sizes.items() if size > 0]
        if unread:
            offsets = self._client.list_offsets(dict.fromkeys(unread, EARLIEST))
            log_starts = {partition: offsets[partition].offset for partition in unread}
            continuation = after_retention(continuation, log_starts)
        return continuation, available

    # ------------------------------------------------------------ brokers

    def _available(self, may_be_gone: Collection[str]) -> AvailableOffsets:
        view, partitions = select_partitions(self._client, self._selection, may_be_gone)
        offsets = {}
        if partitions:
            offsets = self._client.list_offsets(dict.fromkeys(partitions, LATEST))
        topics = dict.fromkeys(partition.topic for partition in partitions)
        ids = {name: view.topic(name).topic_id for name in topics}
        return AvailableOffsets(
            {partition: offsets[partition].offset for partition in partitions},
            {name: topic_id for name, topic_id in ids.items() if topic_id != ZERO_UUID},
            view.cluster_id,
        )

    def _first_position(self) -> StreamPosition:
        view, partitions = select_partitions(self._client, self._selection)
        offsets = starting_offsets(self._client, self.options.read, partitions)
        ids = {partition.topic: view.topic(partition.topic).topic_id for partition in partitions}
        known = {name: topic_id for name, topic_id in ids.items() if topic_id != ZERO_UUID}
        return StreamPosition(offsets, known, view.cluster_id)

    def _size_bytes(self, backlog: Backlog) -> int:
        try:
            per_offset = measured_bytes_per_offset(self._client, backlog.end)
        except ApiError as error:
            raise ValueError(
                "options maxBytesPerTrigger and minBytesPerTrigger need the sizes of the logs, "
                f"which the brokers do not tell: {error}. Use maxOffsetsPerTrigger and "
                "minOffsetsPerTrigger, or allow DescribeLogDirs (Describe on the cluster)"
            ) from error
        return backlog.size_bytes(per_offset)

    def _settled(self, attempt: Callable[[], T]) -> T:
        return settled_plan(self._client, self.options.read, attempt, self._sleep)

    # ------------------------------------------------------------ rules

    def _selects(self, partition: TopicPartition) -> bool:
        return selects(self._selection, partition)

    def _remembered(self, position: StreamPosition) -> dict[str, Uuid]:
        """Return the ids of the topics that the options name, also of those that are gone."""
        named = named_topics(self._selection)
        return {name: data for name, data in position.topic_ids.items() if name in named}

    def _report(self, losses: Collection[str]) -> None:
        if losses and self.options.read.fail_on_data_loss:
            raise DataLoss(
                f"{'; '.join(losses)}. Set the option failOnDataLoss=false to continue with what "
                "is left"
            )
        for loss in losses:
            _LOG.warning("data loss: %s", loss)


def _ranges(start: StreamPosition, end: StreamPosition) -> list[OffsetRange]:
    """Return what lies between two positions, ordered by partition."""
    starts = starts_of(start, end)
    return [
        # A task that finds another id, or no topic, reports the loss of the range.
        OffsetRange(
            partition, end.topic_ids.get(partition.topic, ZERO_UUID), starts[partition], stop
        )
        for partition, stop in sorted(end.offsets.items())
        if stop > starts[partition]
    ]


def named_topics(selection: Selection) -> frozenset[str]:
    """Return the topics that a selection names; a pattern names none."""
    match selection:
        case Assign(partitions):
            return frozenset(partition.topic for partition in partitions)
        case Subscribe(topics):
            return frozenset(topics)
        case SubscribePattern():
            return frozenset()


def selects(selection: Selection, partition: TopicPartition) -> bool:
    """Return True if a selection wants a partition, whether or not it exists."""
    match selection:
        case Assign(partitions):
            return partition in partitions
        case Subscribe(topics):
            return partition.topic in topics
        case SubscribePattern(pattern):
            return re.search(pattern, partition.topic) is not None
