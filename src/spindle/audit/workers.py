"""The processes that audit the replicas of the directories on this machine."""

import errno
import multiprocessing
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

from spindle.audit.processes import forked_pool, submitted_to
from spindle.audit.replica import AuditedReplica, audit_replica, unreadable_replica
from spindle.audit.replica_place import ReplicaPlace
from spindle.audit.throttle import ReadThrottle

_POLL_S: Final = 0.1
_MAX_READERS: Final = 32


@dataclass(frozen=True, slots=True)
class AuditProgress:
    """The progress of an audit; the bytes of a growing log may exceed the total."""

    replicas_done: int
    replicas_total: int
    bytes_done: int
    bytes_total: int


def audit_all(
    places: Sequence[ReplicaPlace],
    *,
    jobs: int,
    pause_ms: int,
    bytes_per_second: int | None,
    on_progress: Callable[[AuditProgress], None],
) -> Iterator[tuple[ReplicaPlace, AuditedReplica | None]]:
    """Audit replicas, and yield each with its result, in the order of completion.

    Args:
        jobs: concurrent processes; 1 reads in this process. With a limit there is one for each of
            up to 32 directories, because most of them wait.
        pause_ms: the pause before suspicious files of a directory in use are read again.
        bytes_per_second: maximum read rate from each log directory, None for no limit.
    """
    sizes = {place.path: log_bytes(place.path) for place in places}
    # The largest first, so that no process has a large one left at the end.
    ordered = sorted(places, key=lambda place: -sizes[place.path])
    total_bytes = sum(sizes.values())
    context = multiprocessing.get_context("fork")
    throttle = ReadThrottle(bytes_per_second, {place.path.parent for place in places}, context)
    worker = _Worker(context.Value("q", 0), throttle, pause_ms)

    def show(count: int) -> None:
        # Without the lock, which a killed process may hold.
        bytes_done = worker.bytes_done.get_obj().value
        on_progress(AuditProgress(count, len(places), bytes_done, total_bytes))

    lanes, width = [deque(ordered)], len(places)
    if bytes_per_second is not None:
        lanes = list(_by_directory(ordered).values())
        jobs = max(jobs, min(len(lanes), _MAX_READERS))
        width = -(-jobs // max(len(lanes), 1))
    if jobs == 1 or len(places) < 2:
        for done, place in enumerate(ordered):
            yield place, worker.audit(place, partial(show, done))
        return
    with forked_pool(min(jobs, len(places)), context, _workers.append, worker) as pool:
        yield from _audited(pool, lanes, width, show)


def _by_directory(places: Sequence[ReplicaPlace]) -> dict[Path, deque[ReplicaPlace]]:
    by_directory: dict[Path, deque[ReplicaPlace]] = {}
    for place in places:
        by_directory.setdefault(place.path.parent, deque()).append(place)
    return by_directory


def _audited(
    pool: ProcessPoolExecutor,
    lanes: list[deque[ReplicaPlace]],
    width: int,
    show: Callable[[int], None],
) -> Iterator[tuple[ReplicaPlace, AuditedReplica | None]]:
    """Audit the replicas of the lanes concurrently, `width` of each lane at the same time."""
    waiting: dict[Future[AuditedReplica | None], tuple[ReplicaPlace, deque[ReplicaPlace]]] = {}

    def submit(lane: deque[ReplicaPlace]) -> None:
        if lane:
            place = lane.popleft()
            waiting[submitted_to(pool, _audit_in_worker, place)] = place, lane

    for lane in lanes * width:
        submit(lane)
    done = 0
    while waiting:
        for future in wait(waiting, _POLL_S, FIRST_COMPLETED).done:
            place, lane = waiting.pop(future)
            submit(lane)
            done += 1
            yield place, _result(future, place)
        show(done)


class AuditWorkers(Protocol):
    """Audits replicas, in processes of this machine (`audit_all`) or on Spark."""

    def __call__(
        self,
        places: Sequence[ReplicaPlace],
        *,
        jobs: int,
        pause_ms: int,
        bytes_per_second: int | None,
        on_progress: Callable[[AuditProgress], None],
    ) -> Iterator[tuple[ReplicaPlace, AuditedReplica | None]]:
        """Yield each replica with its result, None for one that is gone."""


@dataclass(frozen=True, slots=True)
class _Worker:
    """State that the processes share: a count of bytes, and the throttle."""

    bytes_done: Any
    throttle: ReadThrottle
    pause_ms: int

    def audit(self, place: ReplicaPlace, show: Callable[[], None]) -> AuditedReplica | None:
        def note(size_bytes: int) -> None:
            with self.bytes_done.get_lock():
                self.bytes_done.value += size_bytes
            show()

        return audit_replica(
            place,
            pause=partial(time.sleep, self.pause_ms / 1000),
            on_bytes=note,
            throttle=partial(self.throttle.wait, place.path.parent),
        )


_workers: list[_Worker] = []
"""The worker of this process; empty in other processes."""


def _audit_in_worker(place: ReplicaPlace) -> AuditedReplica | None:
    return _workers[0].audit(place, lambda: None)


def _result(future: Future[AuditedReplica | None], place: ReplicaPlace) -> AuditedReplica | None:
    try:
        return future.result()
    except BrokenProcessPool:
        reason = "a process of the audit was killed, perhaps because there was no memory left"
        return unreadable_replica(place, OSError(errno.ENOMEM, reason, str(place.path)))


def log_bytes(replica: Path) -> int:
    """Return the size of the segments of a replica, 0 if it is gone or cannot be read."""
    try:
        return sum(path.stat().st_size for path in replica.glob("*.log"))
    except OSError:
        return 0
