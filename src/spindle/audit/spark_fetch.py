"""Fetch replicas in the tasks of a Spark job: each task fetches some ranges of offsets from a
broker.

The driver queries the leaders for the bounds of the logs, and cuts them at multiples of a power of
two, so that the next audit cuts them at the same offsets. Below the high watermark a range does not
change, except by retention and compaction, so a finished range is not fetched again when an
interrupted audit continues.
"""

import hashlib
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from spindle.audit.fetched_documents import fetched_document, fetched_part
from spindle.audit.fetched_replica import FetchedPart, ReplicaRange, fetch_range, join_ranges
from spindle.audit.fetched_replicas import (
    BrokerReplicas,
    WantedReplica,
    has_moved,
    not_fetched,
)
from spindle.audit.replica import AuditedReplica
from spindle.audit.spark_checkpoint import PartFolder, keep_parts
from spindle.audit.spark_groups import cores_of, rounds
from spindle.audit.spark_job import TaskFailed, TaskLimits
from spindle.audit.throttle import ReadThrottle
from spindle.audit.workers import AuditProgress
from spindle.client.blocking.client import WireClient
from spindle.client.blocking.fan_out import BROKER_FAILURES
from spindle.client.blocking.settings import ClientSettings
from spindle.client.cluster_metadata import BrokerAddress
from spindle.common.errors import ApiError
from spindle.common.ids import TopicPartition
from spindle.pipeline.spark.watched_job import run_watched
from spindle.protocol.sentinels import EARLIEST, LATEST, READ_UNCOMMITTED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RANGE_BYTES: Final = 64 << 20
"""Approximate bytes of one range; a smaller replica is not cut."""


@dataclass(frozen=True, slots=True)
class RangeUnit:
    """A range of a replica in a job.

    Attributes:
        number: its place in the order of the job.
        fingerprint: names the range in the checkpoint folder.
    """

    number: int
    broker: BrokerAddress
    wanted: WantedReplica
    range: ReplicaRange
    size_bytes: int
    fingerprint: str

    @property
    def root(self) -> Path:
        return self.wanted.place.path.parent


class _CutReplica(NamedTuple):
    """A replica, and the numbers of its ranges."""

    wanted: WantedReplica
    ranges: list[ReplicaRange]
    numbers: range


class SparkFetch:
    """Fetches replicas on the executors of a Spark session, as `fetch_replicas` does here.

    Args:
        folder: keeps the parts of finished ranges, so that an audit continues after its driver has
            died; the driver and all executors must see it. None keeps nothing.
    """

    def __init__(self, spark: "SparkSession", folder: PartFolder | None = None) -> None:
        self._spark = spark
        self._folder = folder

    def fetch(
        self,
        client: WireClient,
        brokers: Sequence[BrokerReplicas],
        *,
        bytes_per_second: int | None,
        on_progress: Callable[[AuditProgress], None],
    ) -> list[AuditedReplica]:
        """Fetch and check replicas.

        Args:
            client: Tasks get its settings, including passwords.
            bytes_per_second: maximum rate of all tasks, from each log directory.

        Raises:
            TaskFailed: a task cannot write into the folder.
        """
        replicas, cut, units = _cut(client, brokers)
        done: dict[int, FetchedPart | str] = {}
        left = []
        for unit in units:
            kept = None
            if self._folder is not None:
                kept = self._folder.find(
                    unit.fingerprint, partial(fetched_part, unit.wanted.place.path)
                )
            if kept is None:
                left.append(unit)
            else:
                done[unit.number] = kept
        if left:
            done |= self._run(client.settings, left, bytes_per_second, on_progress, len(cut))
        for replica in cut:
            parts = [done[number] for number in replica.numbers]
            reasons = [part for part in parts if isinstance(part, str)]
            place = replica.wanted.place
            if not reasons:
                whole = [part for part in parts if not isinstance(part, str)]
                replicas.append(join_ranges(place, replica.wanted.topic_id, replica.ranges, whole))
            elif not has_moved(client, place):
                replicas.append(not_fetched(place, reasons[0]))
        return replicas

    def _run(
        self,
        settings: ClientSettings,
        units: Sequence[RangeUnit],
        bytes_per_second: int | None,
        on_progress: Callable[[AuditProgress], None],
        replica_count: int,
    ) -> dict[int, FetchedPart | str]:
        context = self._spark.sparkContext
        folder = None if self._folder is None else self._folder.path
        bytes_done = context.accumulator(0)
        total_bytes = sum(unit.size_bytes for unit in units)

        def show() -> None:
            value = int(bytes_done.value)
            share = min(value * replica_count // max(total_bytes, 1), replica_count)
            on_progress(AuditProgress(share, replica_count, value, total_bytes))

        parts: dict[int, FetchedPart | str] = {}
        for task_round in rounds(units, cores_of(context), bytes_per_second):
            limits = TaskLimits(folder, task_round.bytes_per_second)
            answers: list[dict[int, FetchedPart | str]] = run_watched(
                context,
                partial(fetch_group, settings=settings, limits=limits, on_bytes=bytes_done.add),
                task_round.groups,
                group_id=f"spindle-audit-{uuid.uuid4().hex}",
                title="spindle audit --fetch",
                failure=lambda cause: TaskFailed(cause.text),
                on_poll=show,
            )
            for answer in answers:
                parts |= answer
        return parts


def _cut(
    client: WireClient, brokers: Sequence[BrokerReplicas]
) -> tuple[list[AuditedReplica], list[_CutReplica], list[RangeUnit]]:
    """Return the replicas that cannot be fetched, the others, and all their ranges."""
    bounds = _bounds(
        client, {replica.place.partition for part in brokers for replica in part.replicas}
    )
    failed: list[AuditedReplica] = []
    cut: list[_CutReplica] = []
    units: list[RangeUnit] = []
    for part in brokers:
        for wanted in part.replicas:
            bound = bounds[wanted.place.partition]
            if isinstance(bound, str):
                failed.append(not_fetched(wanted.place, bound))
                continue
            ranges = cut_ranges(*bound, wanted.size_bytes)
            numbers = range(len(units), len(units) + len(ranges))
            size_bytes = max(wanted.size_bytes, 0) // len(ranges)
            units += [
                RangeUnit(
                    number,
                    part.broker,
                    wanted,
                    offset_range,
                    size_bytes,
                    _fingerprint(wanted, offset_range),
                )
                for number, offset_range in zip(numbers, ranges, strict=True)
            ]
            cut.append(_CutReplica(wanted, ranges, numbers))
    return failed, cut, units


def _bounds(
    client: WireClient, partitions: set[TopicPartition]
) -> dict[TopicPartition, tuple[int, int] | str]:
    """Return the first offset and the high watermark of logs, or why they are unknown."""

    def ask(wanted: Sequence[TopicPartition]) -> dict[TopicPartition, tuple[int, int] | str]:
        first, last = (
            client.list_offsets(dict.fromkeys(wanted, at), isolation_level=READ_UNCOMMITTED)
            for at in (EARLIEST, LATEST)
        )
        return {
            partition: (first[partition].offset, last[partition].offset) for partition in wanted
        }

    try:
        return ask(sorted(partitions))
    except BROKER_FAILURES:
        pass  # the error of one partition; the others are queried separately
    bounds: dict[TopicPartition, tuple[int, int] | str] = {}
    for partition in sorted(partitions):
        try:
            bounds |= ask([partition])
        except BROKER_FAILURES as error:
            bounds[partition] = str(error)
    return bounds


def cut_ranges(start: int, end: int, size_bytes: int) -> list[ReplicaRange]:
    """Return the ranges of a log, at least one.

    Args:
        start, end: its first offset, and its high watermark.
        size_bytes: of the log.
    """
    step = 1
    while size_bytes > 0 and 2 * step * size_bytes <= RANGE_BYTES * max(end - start, 1):
        step *= 2
    first = (start // step + 1) * step
    inner = range(first, end, step) if size_bytes > RANGE_BYTES else ()
    borders = [start, *inner, max(end, start)]
    return [ReplicaRange(low, high, is_first=low == start) for low, high in pairwise(borders)]


def _fingerprint(wanted: WantedReplica, each: ReplicaRange) -> str:
    text = repr((str(wanted.place.path), wanted.place.partition, wanted.topic_id, each))
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def fetch_group(
    group: Sequence[RangeUnit],
    *,
    settings: ClientSettings,
    limits: TaskLimits,
    on_bytes: Callable[[int], Any],
) -> dict[int, FetchedPart | str]:
    """Fetch the ranges of a group, on an executor, and keep their parts.

    Return them by the numbers of their units, or the reason of a failure.
    """
    root = group[0].root
    throttle = ReadThrottle(limits.bytes_per_second.get(root), [root], get_context("fork"))
    parts: dict[int, FetchedPart | str] = {}

    def note(size_bytes: int) -> None:
        on_bytes(size_bytes)
        throttle.wait(root, size_bytes)

    with WireClient(settings) as client:
        for unit in group:
            place, topic_id, _ = unit.wanted
            try:
                parts[unit.number] = fetch_range(
                    client, unit.broker, place, topic_id, unit.range, on_bytes=note
                )
            except ApiError as error:
                parts[unit.number] = str(error)
            except BROKER_FAILURES as error:
                # Each further request could take as long to fail.
                parts |= {unit.number: str(error) for unit in group if unit.number not in parts}
                break
    if limits.folder is not None:
        keep_parts(limits.folder, _whole_parts(group, parts))
    return parts


def _whole_parts(
    group: Sequence[RangeUnit], found: Mapping[int, FetchedPart | str]
) -> dict[str, dict[str, Any]]:
    """Return the documents of the ranges that were fetched to their ends."""
    documents = {}
    for unit in group:
        part, end = found[unit.number], unit.range.end
        if not isinstance(part, str) and end is not None and part.end_offset >= end:
            documents[unit.fingerprint] = fetched_document(part)
    return documents
