"""The audit as a Spark job: a task reads segments on a host with their disk; the driver joins the
results.

A log directory must have the same path on the driver and on at least one executor. A task on an
executor that does not see the directory returns its segments. They are scheduled again: on the
hosts that have seen the directory, or, if there are none, on those that the caller named.
"""

import socket
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spindle.audit.findings import is_unread
from spindle.audit.replica import (
    AuditedReplica,
    ReplicaPass,
    SegmentTask,
    confirmed_replica,
    needs_second_pass,
    unreadable_replica,
)
from spindle.audit.replica_place import ReplicaPlace
from spindle.audit.segment_part import SegmentPart
from spindle.audit.spark_checkpoint import PartFolder, keep_parts, segment_fingerprint
from spindle.audit.spark_checkpoint_format import part_document, segment_part
from spindle.audit.spark_groups import cores_of, rounds
from spindle.audit.spark_hosts import names_of_host
from spindle.audit.throttle import ReadThrottle
from spindle.audit.workers import AuditProgress
from spindle.pipeline.spark.watched_job import run_watched

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ATTEMPTS: Final = 5
"""Maximum number of attempts for segments while no executor has seen their directory."""


class TaskFailed(ValueError):
    """A task of the job failed on each of its attempts; the text is that of its error."""


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

    @property
    def root(self) -> Path:
        return self.task.place.path.parent


@dataclass(frozen=True, slots=True)
class TaskLimits:
    """The folder and the limits of a task.

    Attributes:
        folder: the checkpoint folder, None for none.
        bytes_per_second: the share of one task by log directory; empty for no limit.
    """

    folder: Path | None
    bytes_per_second: Mapping[Path, int]


@dataclass(frozen=True, slots=True)
class TaskAnswer:
    """The result of a task.

    Attributes:
        hosts: the names and the address of the host where it ran.
        parts: the results by unit number; None if the host does not see the log directory.
    """

    hosts: tuple[str, ...]
    parts: Mapping[int, SegmentPart] | None


class SparkWorkers:
    """Audits replicas on the executors of a Spark session, as `workers.audit_all` does here.

    Args:
        folder: keeps the parts of finished segments, so that an audit continues after its driver
            has died; the driver and all executors must see it. None keeps nothing.
        hosts: the names and addresses of the host that has the disk, by log directory. Spark
            starts tasks there if it can.
    """

    def __init__(
        self,
        spark: "SparkSession",
        folder: PartFolder | None = None,
        hosts: Mapping[Path, Sequence[str]] | None = None,
    ) -> None:
        self._spark = spark
        self._folder = folder
        self._hosts = hosts or {}

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
            jobs: not used, because Spark has executors.
            pause_ms: the pause before suspicious files of a directory in use are read again.
            bytes_per_second: maximum rate of all executors, from each log directory.

        Raises:
            TaskFailed: no executor sees a directory, or one cannot write into the folder.
        """
        run = partial(self._pass, bytes_per_second=bytes_per_second)
        replicas = run(places, self._folder, on_progress)
        suspicious = [
            place
            for place, replica in replicas.items()
            if replica is not None and needs_second_pass(replica)
        ]
        if suspicious:
            time.sleep(pause_ms / 1000)
            for place, again in run(suspicious, None, lambda progress: None).items():
                first = replicas[place]
                assert first is not None
                replicas[place] = None if again is None else confirmed_replica(first, again)
        yield from replicas.items()

    def _pass(
        self,
        places: Sequence[ReplicaPlace],
        folder: PartFolder | None,
        on_progress: Callable[[AuditProgress], None],
        *,
        bytes_per_second: int | None,
    ) -> dict[ReplicaPlace, AuditedReplica | None]:
        opened: dict[ReplicaPlace, ReplicaPass] = {}
        replicas: dict[ReplicaPlace, AuditedReplica | None] = {}
        for place in places:
            try:
                opened[place] = ReplicaPass(place)
            except FileNotFoundError:
                replicas[place] = None
            except OSError as error:
                replicas[place] = unreadable_replica(place, error)
        tasks = [task for opened_log in opened.values() for task in opened_log.tasks]
        parts = iter(self._parts(tasks, folder, on_progress, len(places), bytes_per_second))
        for place, opened_log in opened.items():
            own = [next(parts) for _ in opened_log.tasks]
            try:
                replicas[place] = opened_log.join(own)
            except FileNotFoundError:
                replicas[place] = None
            except OSError as error:
                replicas[place] = unreadable_replica(place, error)
        return replicas

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
            fingerprint = segment_fingerprint(task)
            kept = None if folder is None else _kept(folder, task, fingerprint)
            if kept is None:
                left.append(SegmentUnit(number, task, _size_bytes(task), fingerprint))
            else:
                done[number] = kept
        context = self._spark.sparkContext
        bytes_done = context.accumulator(0)
        total_bytes = sum(unit.size_bytes for unit in left)

        def show() -> None:
            value = int(bytes_done.value)
            share = value * replica_count // max(total_bytes, 1)
            on_progress(AuditProgress(share, replica_count, value, total_bytes))

        seen = SeenHosts(self._hosts)
        for task_round in rounds(left, cores_of(context), bytes_per_second):
            limits = TaskLimits(
                None if folder is None else folder.path, task_round.bytes_per_second
            )
            read = partial(read_group, limits=limits, on_bytes=bytes_done.add)
            done |= self._run(task_round.groups, read, show, seen)
        return [done[number] for number in range(len(tasks))]

    def _run(
        self,
        groups: Sequence[Sequence[SegmentUnit]],
        read: Callable[[Sequence[SegmentUnit]], TaskAnswer],
        show: Callable[[], None],
        seen: "SeenHosts",
    ) -> dict[int, SegmentPart]:
        done: dict[int, SegmentPart] = {}
        for _ in range(_ATTEMPTS):
            answers: list[TaskAnswer] = run_watched(
                self._spark.sparkContext,
                read,
                groups,
                group_id=f"spindle-audit-{uuid.uuid4().hex}",
                title="spindle audit",
                failure=lambda cause: TaskFailed(cause.text),
                on_poll=show,
                hosts=[seen.preferred(group[0].root) for group in groups],
            )
            handed_back = []
            for group, answer in zip(groups, answers, strict=True):
                seen.note(group[0].root, answer)
                if answer.parts is None:
                    handed_back.append(group)
                else:
                    done |= answer.parts
            if not handed_back:
                return done
            groups = handed_back
        root = groups[0][0].root
        raise TaskFailed(f"no executor sees {root}; tried: {', '.join(seen.blind(root))}")


class SeenHosts:
    """The preferred hosts of tasks, by log directory, updated by the results of tasks.

    Args:
        hosts: the caller's hosts.
    """

    def __init__(self, hosts: Mapping[Path, Sequence[str]]) -> None:
        self._named = hosts
        self._seeing: dict[Path, set[str]] = {}
        self._blind: dict[Path, set[str]] = {}

    def note(self, root: Path, answer: TaskAnswer) -> None:
        """Record whether a host sees a log directory."""
        hosts_by_root = self._blind if answer.parts is None else self._seeing
        hosts_by_root.setdefault(root, set()).update(answer.hosts)

    def preferred(self, root: Path) -> list[str]:
        """Return the hosts that are known to see it, else the caller's hosts."""
        return sorted(self._seeing.get(root, ())) or list(self._named.get(root, ()))

    def blind(self, root: Path) -> list[str]:
        """Return the hosts that do not see it."""
        return sorted(self._blind.get(root, ()))


def _kept(folder: PartFolder, task: SegmentTask, fingerprint: str) -> SegmentPart | None:
    return folder.find(fingerprint, partial(segment_part, task))


def _size_bytes(task: SegmentTask) -> int:
    try:
        return task.segment.path.stat().st_size
    except OSError:
        return 0


def read_group(
    group: Sequence[SegmentUnit], limits: TaskLimits, on_bytes: Callable[[int], Any]
) -> TaskAnswer:
    """Read the segments of a group, on an executor, and keep their parts."""
    root = group[0].root
    hosts = names_of_host(socket.gethostname())
    if not root.is_dir():
        return TaskAnswer(hosts, None)
    throttle = ReadThrottle(limits.bytes_per_second.get(root), [root], get_context("fork"))
    parts = {unit.number: unit.task.run(partial(throttle.wait, root)) for unit in group}
    if limits.folder is not None:
        unchanged = {
            unit.fingerprint: part_document(parts[unit.number])
            for unit in group
            if segment_fingerprint(unit.task) == unit.fingerprint
            and not is_unread(parts[unit.number].findings)
        }
        keep_parts(limits.folder, unchanged)
    on_bytes(sum(part.size_bytes for part in parts.values()))
    return TaskAnswer(hosts, parts)
