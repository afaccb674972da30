"""The audit of the log directories of this machine: list, audit all replicas, compare, confirm."""

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from spindle.audit.confirmation import confirmed_findings
from spindle.audit.findings import is_unread
from spindle.audit.placement import ClusterPlacement, MetadataNotRead
from spindle.audit.replica import AuditedReplica
from spindle.audit.replica_comparison import replica_groups
from spindle.audit.replica_place import ReplicaPlace
from spindle.audit.report import AuditListing, AuditReport, audit_report, list_audit
from spindle.audit.throttle import ReadThrottle
from spindle.audit.workers import AuditProgress, AuditWorkers, audit_all

# The client takes longer to import than a small audit, which needs none.
if TYPE_CHECKING:
    from spindle.audit.cluster_audit import ClusterAudit
    from spindle.audit.fetched_replicas import ReplicaFetch
    from spindle.audit.progress_file import ProgressFile
    from spindle.audit.scrub_history import ScrubHistory

SECOND_LOOK_MS: Final = 1000


def run_audit(
    paths: Sequence[Path],
    *,
    jobs: int = 1,
    checks_records: bool = False,
    load_placement: Callable[[], ClusterPlacement | None] = lambda: None,
    on_progress: Callable[[AuditProgress], None] = lambda progress: None,
    recheck_ms: int = SECOND_LOOK_MS,
    bytes_per_second: int | None = None,
    progress: "ProgressFile | None" = None,
    cluster: "ClusterAudit | None" = None,
    workers: AuditWorkers = audit_all,
    fetch: "ReplicaFetch | None" = None,
    history: "ScrubHistory | None" = None,
) -> AuditReport:
    """Audit log directories.

    Args:
        paths: roots of log directories, of one or several nodes.
        jobs: processes that read at the same time.
        checks_records: the records of all batches are decoded, too.
        load_placement: returns the present metadata of the cluster, None if it is not known; it may
            raise `MetadataNotRead`, which becomes a finding.
        recheck_ms: the pause before suspicious files of a directory in use are read again.
        bytes_per_second: maximum read rate from each log directory.
        progress: results of an interrupted audit to continue from; new ones are added.
        cluster: queries the brokers, too; None for no queries.
        workers: read the replicas; `spark_job.SparkWorkers` has others than this machine.
        fetch: fetches replicas for `cluster`: `fetch_replicas` if it is None, and
            `spark_fetch.SparkFetch` in tasks.
        history: of a scheduled audit: it decides which replicas are read first, and when to stop.

    A directory that cannot be read is a finding.

    Raises:
        ApiError, ClientError: the cluster no longer responds.
        ConfigError: a directory is one of another cluster.
    """
    placement = None
    with suppress(MetadataNotRead):  # `confirmed_findings` reports it
        placement = load_placement()
    policies = None if placement is None else placement.policies()
    listing = list_audit(paths, policies, checks_records=checks_records)
    if cluster is not None:
        cluster.check_identity(listing.directories)
    kept = _kept(listing, progress)
    audited: list[AuditedReplica | None] = [*kept.values()]
    to_read = [place for place in listing.places if place not in kept]
    before = {} if progress is None else {place: progress.fingerprint(place) for place in to_read}
    force = _Force(workers, jobs, recheck_ms, bytes_per_second, on_progress)
    if history is None:
        read = force.read(to_read)
    else:
        read = _scrubbed(
            history,
            to_read,
            force,
            # A broker may have started, stopped, moved or compacted since the first listing.
            lambda: list_audit(paths, policies, checks_records=checks_records).places,
        )
    for place, replica in read:
        audited.append(replica)
        if progress is not None and replica is not None:
            progress.add(before[place], replica)
    if cluster is not None:
        audited += cluster.fetched_replicas(listing.places, bytes_per_second, fetch, on_progress)
    confirmed = confirmed_findings(paths, load_placement, recheck_ms)
    present = [
        replica for replica in audited if replica is not None and replica.place.path.is_dir()
    ]
    if replica_groups(present, are_compacted=True):
        from spindle.audit.compacted_comparison import compare_compacted

        throttle = ReadThrottle(bytes_per_second, paths, multiprocessing.get_context("fork"))
        confirmed += compare_compacted(
            present, placement, jobs=jobs, pause_ms=recheck_ms, throttle=throttle
        )
    if progress is not None and is_unread(confirmed):
        progress.has_unread = True
    if cluster is not None:
        confirmed += cluster.confirmed_findings(listing.directories, recheck_ms)
    report = audit_report(listing, audited, placement, confirmed)
    return replace(report, resumed=len(kept))


def _kept(
    listing: AuditListing, progress: "ProgressFile | None"
) -> dict[ReplicaPlace, AuditedReplica]:
    """Return the results of an interrupted audit."""
    if progress is None:
        return {}
    replicas = {place: progress.find(place) for place in listing.places}
    return {place: replica for place, replica in replicas.items() if replica is not None}


class _Force(NamedTuple):
    """The workers of an audit, and their limits."""

    workers: AuditWorkers
    jobs: int
    pause_ms: int
    bytes_per_second: int | None
    on_progress: Callable[[AuditProgress], None]

    def read(
        self, places: Sequence[ReplicaPlace]
    ) -> Iterator[tuple[ReplicaPlace, AuditedReplica | None]]:
        """Yield each replica with its result, None for one that is gone."""
        return self.workers(
            places,
            jobs=self.jobs,
            pause_ms=self.pause_ms,
            bytes_per_second=self.bytes_per_second,
            on_progress=self.on_progress,
        )


def _scrubbed(
    history: "ScrubHistory",
    places: Sequence[ReplicaPlace],
    force: _Force,
    present: Callable[[], Sequence[ReplicaPlace]],
) -> Iterator[tuple[ReplicaPlace, AuditedReplica | None]]:
    """Yield the replicas that a scheduled audit reads within its time limit, with their results."""
    for group in history.groups(places, force.jobs):
        begun_ms = history.now_ms()
        now = {place.path: place for place in present()}
        for place, replica in force.read([now[p.path] for p in group if p.path in now]):
            if replica is not None:
                history.add(replica, begun_ms)
            yield place, replica
