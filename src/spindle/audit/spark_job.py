"""The audit as a Spark job: a task reads some segments where it sees their disk; the driver joins.

A log directory must have the same path on the driver and on the executors. A task on an executor
that does not see it fails, and Spark tries it again, perhaps on another one.
"""

import socket
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotDone
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spindle.audit.findings import is_unread
from spindle.audit.log_join import SegmentPart
from spindle.audit.part_folder import PartFolder, keep_parts, segment_fingerprint
from spindle.audit.replica import (
    AuditedReplica,
    ReplicaPass,
    ReplicaPlace,
    SegmentTask,
    confirmed_replica,
    needs_second_pass,
    unreadable_replica,
)
from spindle.audit.throttle import ReadThrottle
from spindle.audit.workers import AuditProgress
from spindle.pipeline.plain_errors import plainly, reported_cause

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_POLL_S: Final = 0.2
_TASKS_FOR_EACH_CORE: Final = 4
_LEAST_BYTES: Final = 32 << 20
_MOST_BYTES: Final = 1 << 30
_MOST_SEGMENTS: Final = 1000


class TaskFailed(ValueError):
    """A task of the job failed on each of its attempts; the text is that of its error."""


class DirectoryNotVisible(ValueError):
    """An executor does not see a log directory."""


@dataclass(frozen=True, slots=True)
class SegmentUnit:
    """A segment in a job.

    Attributes:
        number: its place in the order of the job.
        fingerprint: of its files before they are read.
    """

    number: int
    task: SegmentTask
    size_bytes: int
    fingerprint: str


@dataclass(frozen=True, slots=True)
class TaskLimits:
    """The folder and the limits of a task.

    Attributes:
        folder: where it leaves its parts, None for nowhere.
        bytes_per_second: by log directory, the share of one task; empty for no limit.
    """

    folder: Path | None
    bytes_per_second: dict[Path, int]


class SparkWorkers:
    """Audits replicas on the executors of a Spark session, as `workers.audit_all` does here.

    Args:
        folder: keeps the parts of segments that are done, so that an audit whose driver died goes
            on; the driver and all executors must see it. None keeps nothing.
    """

    def __init__(self, spark: "SparkSession", folder: PartFolder | None = None) -> None:
        self._spark = spark
        self._folder = folder

    def audit_all(
        self,
        places: Sequence[ReplicaPlace],
        *,
        jobs: int,
        pause_ms: int,
        bytes_per_second: int | None,
        on_progress: Callable[[AuditProgress], None],
    ) -> Iterator[tuple[ReplicaPlace, AuditedReplica | None]]:
        """Audit replicas, and yield each with its result.

        Args:
            jobs: is not used: Spark has its executors.
            pause_ms: the wait before something odd in a directory in use is read again.
            bytes_per_second: what all executors together read at most from each log directory.

        Raises:
            TaskFailed: an executor does not see a directory, or cannot write into the folder.
        """
        run = partial(self._pass, bytes_per_second=bytes_per_second)
        found = run(places, self._folder, on_progress)
        suspicious = [
            place for place, each in found.items() if each is not None and needs_second_pass(each)
        ]
        if suspicious:
            time.sleep(pause_ms / 1000)
            for place, again in run(suspicious, None, lambda progress: None).items():
                first = found[place]
                assert first is not None
                found[place] = None if again is None else confirmed_replica(first, again)
        yield from found.items()

    def _pass(
        self,
        places: Sequence[ReplicaPlace],
        folder: PartFolder | None,
        on_progress: Callable[[AuditProgress], None],
        *,
        bytes_per_second: int | None,
    ) -> dict[ReplicaPlace, AuditedReplica | None]:
        opened: dict[ReplicaPlace, ReplicaPass] = {}
        found: dict[ReplicaPlace, AuditedReplica | None] = {}
        for place in places:
            try:
                opened[place] = ReplicaPass(place)
            except FileNotFoundError:
                found[place] = None
            except OSError as error:
                found[place] = unreadable_replica(place, error)
        tasks = [task for each in opened.values() for task in each.tasks]
        parts = iter(self._parts(tasks, folder, on_progress, len(places), bytes_per_second))
        for place, each in opened.items():
            own = [next(parts) for _ in each.tasks]
            try:
                found[place] = each.join(own)
            except FileNotFoundError:
                found[place] = None
            except OSError as error:
                found[place] = unreadable_replica(place, error)
        return found

    def _parts(
        self,
        tasks: Sequence[SegmentTask],
        folder: PartFolder | None,
        on_progress: Callable[[AuditProgress], None],
        replica_count: int,
        bytes_per_second: int | None,
    ) -> list[SegmentPart]:
        """Return the parts of all segments, in their order: those in the folder, and new ones."""
        done: dict[int, SegmentPart] = {}
        left: list[SegmentUnit] = []
        for number, task in enumerate(tasks):
            found = segment_fingerprint(task)
            kept = None if folder is None else folder.find(task, found)
            if kept is None:
                left.append(SegmentUnit(number, task, _size_bytes(task), found))
            else:
                done[number] = kept
        if left:
            cores = max(self._spark.sparkContext.defaultParallelism, 1)
            groups = grouped(left, cores * _TASKS_FOR_EACH_CORE)
            limits = TaskLimits(
                None if folder is None else folder.path,
                shares(groups, cores, bytes_per_second),
            )
            done |= self._run(groups, limits, on_progress, replica_count)
        return [done[number] for number in range(len(tasks))]

    def _run(
        self,
        groups: Sequence[Sequence[SegmentUnit]],
        limits: TaskLimits,
        on_progress: Callable[[AuditProgress], None],
        replica_count: int,
    ) -> dict[int, SegmentPart]:
        context = self._spark.sparkContext
        bytes_done = context.accumulator(0)
        total_bytes = sum(unit.size_bytes for group in groups for unit in group)
        group_id = f"spindle-audit-{uuid.uuid4().hex}"

        def read(group: Sequence[SegmentUnit]) -> list[tuple[int, SegmentPart]]:
            return read_group(group, limits, bytes_done.add)

        def run() -> list[list[tuple[int, SegmentPart]]]:
            context.setJobGroup(group_id, "spindle audit", interruptOnCancel=True)
            return context.parallelize(groups, len(groups)).map(plainly(read)).collect()

        def show() -> None:
            value = int(bytes_done.value)
            share = value * replica_count // max(total_bytes, 1)
            on_progress(AuditProgress(share, replica_count, value, total_bytes))

        with ThreadPoolExecutor(1, "spindle-audit") as pool:
            job = pool.submit(run)
            try:
                while not _is_done(job):
                    show()
            except BaseException:
                context.cancelJobGroup(group_id)
                raise
        return dict(item for group in _result(job) for item in group)


def _is_done(job: "Future[Any]") -> bool:
    try:
        job.exception(timeout=_POLL_S)
    except NotDone:
        return False
    return True


def _result(job: "Future[Any]") -> Any:
    try:
        return job.result()
    except Exception as error:
        cause = reported_cause(str(error))
        if cause is None or not cause.is_plain:
            raise
        raise TaskFailed(cause.text) from None


def _size_bytes(task: SegmentTask) -> int:
    try:
        return task.segment.path.stat().st_size
    except OSError:
        return 0


def grouped(units: Sequence[SegmentUnit], task_count: int) -> list[list[SegmentUnit]]:
    """Return about so many groups of segments, each of one log directory, the largest first."""
    total_bytes = sum(unit.size_bytes for unit in units)
    target = min(max(total_bytes // max(task_count, 1), _LEAST_BYTES), _MOST_BYTES)
    groups: list[list[SegmentUnit]] = []
    open_groups: dict[Path, tuple[list[SegmentUnit], int]] = {}
    for unit in units:
        root = unit.task.place.path.parent
        group, size_bytes = open_groups.get(root, ([], 0))
        is_full = size_bytes + unit.size_bytes > target or len(group) >= _MOST_SEGMENTS
        if not group or is_full:
            group, size_bytes = [], 0
            groups.append(group)
        group.append(unit)
        open_groups[root] = group, size_bytes + unit.size_bytes
    return sorted(groups, key=lambda group: -sum(unit.size_bytes for unit in group))


def shares(
    groups: Sequence[Sequence[SegmentUnit]], cores: int, bytes_per_second: int | None
) -> dict[Path, int]:
    """Return what one task may read of each log directory, in bytes per second; {} for no limit.

    As many tasks as there are cores may read the same directory at the same time.
    """
    if bytes_per_second is None:
        return {}
    counts: dict[Path, int] = {}
    for group in groups:
        root = group[0].task.place.path.parent
        counts[root] = counts.get(root, 0) + 1
    return {root: max(bytes_per_second // min(count, cores), 1) for root, count in counts.items()}


def read_group(
    group: Sequence[SegmentUnit], limits: TaskLimits, on_bytes: Callable[[int], Any]
) -> list[tuple[int, SegmentPart]]:
    """Read the segments of a group, on an executor, and keep their parts.

    Raises:
        DirectoryNotVisible: this machine does not have the log directory at its path.
    """
    root = group[0].task.place.path.parent
    if not root.is_dir():
        raise DirectoryNotVisible(f"host {socket.gethostname()} does not see {root}")
    throttle = ReadThrottle(limits.bytes_per_second.get(root), [root], get_context("fork"))
    parts = {unit.number: unit.task.run(partial(throttle.wait, root)) for unit in group}
    if limits.folder is not None:
        unchanged = {
            unit.fingerprint: parts[unit.number]
            for unit in group
            if segment_fingerprint(unit.task) == unit.fingerprint
            and not is_unread(parts[unit.number].findings)
        }
        keep_parts(limits.folder, unchanged)
    on_bytes(sum(part.size_bytes for part in parts.values()))
    return list(parts.items())
