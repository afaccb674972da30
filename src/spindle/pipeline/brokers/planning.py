"""Plan a read on the driver: its partitions, offset ranges and tasks.

Spark keeps the plan of a Python source as long as the DataFrame lives, but its `kafka` source asks
for the ends of the log in every action. So the plan takes open ends as they are now, to cut the
read into tasks, and marks them; the tasks ask again (`reading.settled`).
"""

import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final, TypeVar

from spindle.client.blocking.client import WireClient
from spindle.client.cluster_metadata import ClusterView, TopicView
from spindle.client.errors import ClientError, RequestTimedOut, is_worth_retrying
from spindle.columnar.decoder import MAX_OFFSET
from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicPartition
from spindle.pipeline.brokers.options import BrokerReadOptions
from spindle.pipeline.brokers.ranges import (
    OffsetRange,
    size_of,
    split_by_bytes,
    split_by_count,
    tasks_for,
    with_empty_ends,
)
from spindle.pipeline.errors import DataLoss
from spindle.pipeline.options.limits import (
    AtOffsets,
    AtPosition,
    AtTime,
    AtTimes,
    End,
    NoMatch,
    OffsetLimit,
    check_complete,
)
from spindle.pipeline.options.topics import Assign, Selection, Subscribe, SubscribePattern
from spindle.pipeline.segments.pushdown import PushedFilters
from spindle.protocol.sentinels import EARLIEST, LATEST

T = TypeVar("T")
Offsets = Mapping[TopicPartition, int]
_DEFAULT_RECORD_BYTES: Final = 100.0
"""The assumed size of a record if the brokers do not report the sizes of their logs."""


def plan_tasks(
    options: BrokerReadOptions,
    filters: PushedFilters | None = None,
    *,
    keep_empty_ends: bool = False,
    sleep: Callable[[float], None] = time.sleep,
) -> list[tuple[OffsetRange, ...]]:
    """Return the ranges of each task.

    Args:
        filters: The filters that Spark will apply; offsets that cannot pass are not planned. None
            means the bounds of the options.
        keep_empty_ends: Plan also ranges that are empty now and may have grown when the tasks run.

    Raises:
        ValueError: limits that do not fit the partitions that exist.
        DataLoss: a log ends before an offset of the options.
        ApiError: a topic or a partition that does not exist or may not be read.
        ClientError: brokers that cannot be asked.
    """
    with WireClient(options.client) as client:

        def settle() -> list[OffsetRange]:
            view, partitions = select_partitions(client, options.selection)
            bounds = filters or options.row_bounds
            return _filtered(client, _ranges(client, options, view, partitions), bounds)

        ranges = settled_plan(client, options, settle, sleep)
        tasks = cut_into_tasks(client, options, ranges)
    return with_empty_ends(tasks, ranges) if keep_empty_ends else tasks


def cut_into_tasks(
    client: WireClient,
    options: BrokerReadOptions,
    ranges: list[OffsetRange],
) -> list[tuple[OffsetRange, ...]]:
    """Return the ranges as tasks, cut by the number of offsets or of bytes, as the options say."""
    if options.min_partitions is not None or options.max_records_per_partition is not None:
        return split_by_count(ranges, options.min_partitions, options.max_records_per_partition)
    per_offset = bytes_per_offset(client, ranges)
    return split_by_bytes(ranges, per_offset, suitable_tasks(options, size_of(ranges, per_offset)))


def suitable_tasks(options: BrokerReadOptions, total_bytes: float) -> int:
    """Return the number of tasks for a read of this size, if the options do not cut by offsets."""
    return tasks_for(total_bytes, options.parallelism or len(os.sched_getaffinity(0)))


def settled_plan(
    client: WireClient,
    options: BrokerReadOptions,
    attempt: Callable[[], T],
    sleep: Callable[[float], None],
) -> T:
    """Return the result of a planning step; start again if the topics change in the meantime."""
    failures = 0
    while True:
        try:
            return attempt()
        except (ApiError, ClientError) as error:
            failures += 1
            gave_up = failures > options.offset_retries or isinstance(error, RequestTimedOut)
            if gave_up or not is_worth_retrying(error):
                raise
            client.forget_metadata()
            sleep(options.offset_retry_interval_ms / 1000)


def select_partitions(
    client: WireClient, selection: Selection, may_be_gone: Collection[str] = ()
) -> tuple[ClusterView, list[TopicPartition]]:
    """Return the partitions of a selection, sorted, without those of internal topics.

    Args:
        may_be_gone: Topics that are left out if they, or their partitions, do not exist.

    Raises:
        ValueError: an assigned partition that does not exist.
        ApiError: a topic that does not exist or may not be read.
    """
    match selection:
        case Assign(assigned):
            view = _described(client, dict.fromkeys(p.topic for p in assigned), may_be_gone)
            existing = set(_partitions_of(view.topics.values()))
            missing = [p for p in assigned if p not in existing and p.topic not in may_be_gone]
            if missing:
                raise ValueError(f"option assign: no such partition: {_listed(missing)}")
            return view, sorted(existing.intersection(assigned))
        case Subscribe(topics):
            view = _described(client, topics, may_be_gone)
            return view, sorted(_partitions_of(view.topics.values()))
        case SubscribePattern(pattern):
            view = client.metadata()
            compiled = re.compile(pattern)
            matching = [topic for name, topic in view.topics.items() if compiled.search(name)]
            return view, sorted(_partitions_of(matching))


def _described(
    client: WireClient, topics: Iterable[str], may_be_gone: Collection[str]
) -> ClusterView:
    names = list(topics)
    view = client.metadata(names)
    for name, code in view.refused.items():
        if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and name in may_be_gone:
            continue
        raise ApiError(code, _refusal(name, code, view.cluster_id))
    return view


def _refusal(topic: str, code: ErrorCode, cluster_id: str | None) -> str:
    match code:
        case ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return f"topic {topic!r} does not exist in cluster {cluster_id}"
        case ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return f"the user has no right to read topic {topic!r} of cluster {cluster_id}"
        case _:
            return f"topic {topic!r} of cluster {cluster_id} cannot be read ({code.name})"


def _partitions_of(topics: Iterable[TopicView]) -> list[TopicPartition]:
    return [
        TopicPartition(topic.name, number)
        for topic in topics
        if not topic.is_internal
        for number in topic.partitions
    ]


def _ranges(
    client: WireClient,
    options: BrokerReadOptions,
    view: ClusterView,
    partitions: list[TopicPartition],
) -> list[OffsetRange]:
    if not partitions:
        return []
    start = starting_offsets(client, options, partitions)
    stop = _resolve(client, options.stop, partitions, End.STOP, NoMatch.LATEST)
    for partition, log_end in _passed_ends(client, options, stop).items():
        start[partition], stop[partition] = min(start[partition], log_end), log_end
    for partition in partitions:
        if start[partition] > stop[partition]:
            raise ValueError(
                f"{partition} would start at offset {start[partition]}, after its end "
                f"{stop[partition]}"
            )
    return [
        OffsetRange(
            partition,
            view.topic(partition.topic).topic_id,
            start[partition],
            stop[partition],
            from_earliest=_is_at(options.start, partition, EARLIEST),
            to_latest=_is_at(options.stop, partition, LATEST),
        )
        for partition in partitions
    ]


def _passed_ends(client: WireClient, options: BrokerReadOptions, stop: Offsets) -> Offsets:
    """Return the ends of those logs that end before the offset at which the options end.

    A task would wait forever for the offsets between the two.

    Raises:
        DataLoss: there is such a log, and the options say that this is an error.
    """
    if not isinstance(options.stop, AtOffsets):
        return {}
    explicit = {
        partition: LATEST for partition in stop if not _is_at(options.stop, partition, LATEST)
    }
    ends = client.list_offsets(explicit) if explicit else {}
    passed = {
        partition: end.offset for partition, end in ends.items() if end.offset < stop[partition]
    }
    if passed and options.fail_on_data_loss:
        partition, log_end = min(passed.items())
        raise DataLoss(
            f"{partition}: ending offset {stop[partition]} is outside the log, which ends at "
            f"{log_end} "
            "(failOnDataLoss=false reads what is there)"
        )
    return passed


def starting_offsets(
    client: WireClient, options: BrokerReadOptions, partitions: list[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return where the options start to read each partition.

    Raises:
        ValueError: the options name other partitions, or no record is as new as a timestamp.
        ApiError, ClientError: the brokers refuse, or cannot be reached.
    """
    if not partitions:
        return {}
    return _resolve(client, options.start, partitions, End.START, options.no_match)


def _is_at(limit: OffsetLimit, partition: TopicPartition, position: int) -> bool:
    """Return True if a limit is an end of the log, and not an offset or a time."""
    return isinstance(limit, AtPosition | AtOffsets) and limit.of(partition) == position


def _filtered(
    client: WireClient, ranges: list[OffsetRange], filters: PushedFilters
) -> list[OffsetRange]:
    """Return the part of the ranges in which rows can pass the filters.

    Only a lower bound of the time cuts a range: no record before the first match passes it, while
    records behind an upper bound may still be older.
    """
    wanted = [offset_range for offset_range in ranges if filters.wants(offset_range.partition)]
    first: dict[TopicPartition, int] = {}
    if filters.min_timestamp_ms is not None and wanted:
        times = dict.fromkeys(
            (offset_range.partition for offset_range in wanted), filters.min_timestamp_ms
        )
        offsets = client.list_offsets(times)
        first = {
            offset_range.partition: offsets[offset_range.partition].offset
            if offsets[offset_range.partition].offset >= 0
            else offset_range.end_offset
            for offset_range in wanted
        }
    return [
        replace(
            offset_range,
            start_offset=max(
                offset_range.start_offset, filters.min_offset, first.get(offset_range.partition, 0)
            ),
            end_offset=min(offset_range.end_offset, filters.end_offset),
            to_latest=offset_range.to_latest and filters.end_offset == MAX_OFFSET,
        )
        for offset_range in wanted
    ]


def _resolve(
    client: WireClient,
    limit: OffsetLimit,
    partitions: list[TopicPartition],
    end: End,
    no_match: NoMatch,
) -> dict[TopicPartition, int]:
    """Return an offset for every partition."""
    check_complete(limit, end, partitions)
    match limit:
        case AtPosition(position):
            return _positions(client, dict.fromkeys(partitions, position))
        case AtOffsets(offsets):
            return _positions(client, offsets)
        case AtTime(timestamp_ms):
            times = dict.fromkeys(partitions, timestamp_ms)
            return _positions(client, _by_time(client, times, no_match))
        case AtTimes(timestamps_ms):
            return _positions(client, _by_time(client, timestamps_ms, no_match))


def _positions(client: WireClient, offsets: Offsets) -> dict[TopicPartition, int]:
    """Return the offsets, with LATEST and EARLIEST replaced by their current values."""
    open_ends = {
        partition: offset for partition, offset in offsets.items() if offset in (LATEST, EARLIEST)
    }
    found_offsets = client.list_offsets(open_ends) if open_ends else {}
    return {
        partition: found_offsets[partition].offset if partition in found_offsets else offset
        for partition, offset in offsets.items()
    }


def _by_time(
    client: WireClient, timestamps_ms: Offsets, no_match: NoMatch
) -> dict[TopicPartition, int]:
    found_offsets = client.list_offsets(timestamps_ms)
    offsets = {}
    for partition, timestamp_ms in timestamps_ms.items():
        offset = found_offsets[partition].offset
        if offset < 0 and no_match is NoMatch.ERROR:
            raise ValueError(
                f"{partition} has no record at or after the starting timestamp {timestamp_ms}; "
                "option startingOffsetsByTimestampStrategy=latest starts at its end instead"
            )
        offsets[partition] = offset if offset >= 0 else LATEST
    return offsets


def _listed(partitions: list[TopicPartition]) -> str:
    return ", ".join(map(str, partitions)) or "none"


def bytes_per_offset(client: WireClient, ranges: list[OffsetRange]) -> dict[TopicPartition, float]:
    """Return the bytes that an offset stands for in each topic, by the size of the logs.

    A reader may lack the right to ask for sizes. They only steer the cutting, so one guess will do.
    """
    partitions = [offset_range.partition for offset_range in ranges]
    try:
        return measured_bytes_per_offset(client, partitions)
    except (ApiError, ClientError):
        return dict.fromkeys(partitions, _DEFAULT_RECORD_BYTES)


def measured_bytes_per_offset(
    client: WireClient, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, float]:
    """Return the bytes that an offset of each partition takes on average in its log.

    An empty partition counts as one with records of 100 bytes.

    Raises:
        ApiError: the reader may not ask for the sizes of logs.
        ClientError: a broker cannot be reached.
    """
    per_offset = dict.fromkeys(partitions, _DEFAULT_RECORD_BYTES)
    wanted: dict[str, list[int]] = {}
    for topic, number in per_offset:
        wanted.setdefault(topic, []).append(number)
    sizes = {
        partition: size
        for partition, size in _log_sizes(client, wanted).items()
        if partition in per_offset
    }
    held = client.list_offsets(dict.fromkeys(sizes, EARLIEST)) if sizes else {}
    ends = client.list_offsets(dict.fromkeys(sizes, LATEST)) if sizes else {}
    for partition, size_bytes in sizes.items():
        count = ends[partition].offset - held[partition].offset
        if count > 0 and size_bytes > 0:
            per_offset[partition] = size_bytes / count
    return per_offset


def _log_sizes(client: WireClient, wanted: Mapping[str, list[int]]) -> dict[TopicPartition, int]:
    sizes: dict[TopicPartition, int] = {}
    if not wanted:
        return sizes
    for log_dirs in client.describe_log_dirs(wanted).values():
        for log_dir in log_dirs:
            for partition, replica in log_dir.replicas.items():
                if not replica.is_future:
                    sizes[partition] = max(replica.size_bytes, sizes.get(partition, 0))
    return sizes
