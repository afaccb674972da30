"""The audit of log directories as a whole: list them, audit all replicas, compare, confirm."""

import errno
import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from spindle.audit.closing_state import ClosingState
from spindle.audit.findings import AuditFinding, FindingKind, Severity
from spindle.audit.log_directory import (
    ListedLogDirectory,
    compare_directories,
    list_log_directory,
)
from spindle.audit.odd_files import refuse_odd_file
from spindle.audit.placement import ClusterPlacement, compare_with_metadata
from spindle.audit.replica import AuditedReplica, ReplicaPlace, audit_replica, unreadable_replica
from spindle.audit.replica_comparison import compare_replicas
from spindle.common.errors import CorruptLog
from spindle.common.uuids import Uuid
from spindle.log.formats.names import PARTITION_METADATA
from spindle.pipeline.segments.small_files import read_topic_id

SECOND_LOOK_MS: Final = 1000
_LOOKS: Final = 4
_POLL_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class AuditProgress:
    """How far an audit is; the bytes of a log that grows may exceed the total."""

    replicas_done: int
    replicas_total: int
    bytes_done: int
    bytes_total: int


@dataclass(frozen=True, slots=True)
class AuditReport:
    """The result of an audit.

    Attributes:
        replicas: those that were there to the end.
        findings: of all files, errors first, then by path and position.
        left_out: findings beyond those that are listed.
        moved_away: replicas that were moved or deleted meanwhile.
    """

    directories: tuple[ListedLogDirectory, ...]
    replicas: tuple[AuditedReplica, ...]
    findings: tuple[AuditFinding, ...]
    left_out: int
    moved_away: int

    @property
    def size_bytes(self) -> int:
        return sum(replica.size_bytes for replica in self.replicas)

    @property
    def batch_count(self) -> int:
        return sum(replica.batch_count for replica in self.replicas)


def run_audit(
    paths: Sequence[Path],
    *,
    jobs: int = 1,
    checks_records: bool = False,
    load_placement: Callable[[], ClusterPlacement | None] = lambda: None,
    on_progress: Callable[[AuditProgress], None] = lambda progress: None,
    second_look_ms: int = SECOND_LOOK_MS,
) -> AuditReport:
    """Audit log directories.

    Args:
        paths: roots of log directories, of one or several nodes.
        jobs: processes that read at the same time.
        checks_records: the records of all batches are decoded, too.
        load_placement: returns the present metadata of the cluster, None if it is not known.
        second_look_ms: the wait before something odd in a directory in use is read again.

    A directory that cannot be read is a finding.
    """
    placement = load_placement()
    policies = None if placement is None else placement.policies()
    listed = [list_log_directory(path, policies) for path in paths]
    places = [
        replace(place, checks_records=checks_records)
        for directory in listed
        for place in directory.replicas
    ]
    audited = list(_audit_all(places, jobs, second_look_ms, on_progress))
    replicas = [replica for replica in audited if replica is not None]
    findings = [finding for replica in replicas for finding in replica.findings]
    findings += compare_replicas(replicas, placement)
    confirmed = _confirmed(paths, load_placement, second_look_ms)
    findings += [*confirmed, *_unread(listed, confirmed)]
    return AuditReport(
        tuple(listed),
        tuple(replicas),
        tuple(sorted(findings, key=_order)),
        sum(replica.left_out for replica in replicas),
        len(audited) - len(replicas),
    )


def _order(finding: AuditFinding) -> tuple[bool, str, int]:
    return finding.kind.severity is not Severity.ERROR, finding.path, finding.position or 0


def _unread(
    listed: Sequence[ListedLogDirectory], confirmed: Sequence[AuditFinding]
) -> list[AuditFinding]:
    """Return what the first look could not read, if a later one could: it was not audited."""
    known = {finding.path for finding in confirmed if finding.kind is FindingKind.UNREADABLE}
    found = [finding for each in listed for finding in each.findings]
    return [
        each for each in found if each.kind is FindingKind.UNREADABLE and each.path not in known
    ]


def _confirmed(
    paths: Sequence[Path],
    load_placement: Callable[[], ClusterPlacement | None],
    second_look_ms: int,
) -> list[AuditFinding]:
    """Return what is wrong with the roots, and with the places of the replicas.

    A broker that creates, moves and deletes replicas is seen in the middle of it; what counts in
    directories in use is there in several looks.
    """
    found, is_in_use = _look(paths, load_placement)
    for _ in range(_LOOKS - 1):
        if not found or not is_in_use:
            break
        time.sleep(second_look_ms / 1000)
        before = {(finding.kind, finding.path) for finding in found}
        again, is_in_use = _look(paths, load_placement)
        found = [finding for finding in again if (finding.kind, finding.path) in before]
    return found


def _look(
    paths: Sequence[Path], load_placement: Callable[[], ClusterPlacement | None]
) -> tuple[list[AuditFinding], bool]:
    """Return the findings of one look at the roots, and whether a directory is in use."""
    listed = [list_log_directory(path) for path in paths]
    topic_ids = {place.path: _topic_id(place.path) for each in listed for place in each.replicas}
    found = [finding for directory in listed for finding in directory.findings]
    found += compare_directories(listed, topic_ids)
    placement = load_placement()
    if placement is not None:
        found += compare_with_metadata(placement, listed, topic_ids)
    return found, any(each.state is ClosingState.IN_USE for each in listed)


def _topic_id(replica: Path) -> Uuid | None:
    try:
        refuse_odd_file(replica / PARTITION_METADATA)
        return read_topic_id(replica)
    except (CorruptLog, OSError):
        return None  # a finding of the replica


def _audit_all(
    places: Sequence[ReplicaPlace],
    jobs: int,
    second_look_ms: int,
    on_progress: Callable[[AuditProgress], None],
) -> Iterator[AuditedReplica | None]:
    sizes = {place.path: log_bytes(place.path) for place in places}
    # The largest first, so that no process is left with a large one at the end.
    ordered = sorted(places, key=lambda place: -sizes[place.path])
    total_bytes = sum(sizes.values())
    pause = partial(time.sleep, second_look_ms / 1000)
    if jobs == 1 or len(places) < 2:
        yield from _audit_here(ordered, total_bytes, pause, on_progress)
        return
    context = multiprocessing.get_context("fork")
    counter = context.Value("q", 0)
    with ProcessPoolExecutor(
        min(jobs, len(places)), context, initializer=_adopt, initargs=(counter,)
    ) as pool:
        submitted: dict[Future[AuditedReplica | None], ReplicaPlace] = {
            _submit(pool, place, second_look_ms): place for place in ordered
        }
        waiting = set(submitted)
        while waiting:
            done, waiting = wait(waiting, _POLL_S, FIRST_COMPLETED)
            count = len(places) - len(waiting)
            on_progress(AuditProgress(count, len(places), counter.value, total_bytes))
            for future in done:
                yield _result(future, submitted[future])


def _submit(
    pool: ProcessPoolExecutor, place: ReplicaPlace, second_look_ms: int
) -> Future[AuditedReplica | None]:
    """Give a replica to a worker; the future has failed already if one was killed before."""
    try:
        return pool.submit(_audit_in_worker, place, second_look_ms)
    except BrokenProcessPool as error:
        failed: Future[AuditedReplica | None] = Future()
        failed.set_exception(error)
        return failed


def _result(future: Future[AuditedReplica | None], place: ReplicaPlace) -> AuditedReplica | None:
    try:
        return future.result()
    except BrokenProcessPool:
        reason = "a process of the audit was killed, perhaps because there was no memory left"
        return unreadable_replica(place, OSError(errno.ENOMEM, reason, str(place.path)))


def _audit_here(
    places: Sequence[ReplicaPlace],
    total_bytes: int,
    pause: Callable[[], None],
    on_progress: Callable[[AuditProgress], None],
) -> Iterator[AuditedReplica | None]:
    done_bytes = done = 0

    def note(size_bytes: int) -> None:
        nonlocal done_bytes
        done_bytes += size_bytes
        on_progress(AuditProgress(done, len(places), done_bytes, total_bytes))

    for place in places:
        yield audit_replica(place, pause=pause, on_bytes=note)
        done += 1


_counters: list[Any] = []
"""The shared count of bytes, in a worker process."""


def _adopt(counter: Any) -> None:
    _counters.append(counter)


def _audit_in_worker(place: ReplicaPlace, second_look_ms: int) -> AuditedReplica | None:
    def note(size_bytes: int) -> None:
        with _counters[0].get_lock():
            _counters[0].value += size_bytes

    return audit_replica(place, pause=partial(time.sleep, second_look_ms / 1000), on_bytes=note)


def log_bytes(replica: Path) -> int:
    """Return the size of the segments of a replica, 0 if it is gone or cannot be read."""
    try:
        return sum(path.stat().st_size for path in replica.glob("*.log"))
    except OSError:
        return 0
