"""Compare replicas of compacted logs: the latest record of each key must be the same.

Each broker compacts its replica at its own time, so the batches of replicas differ. But below the
high watermark, the latest record of a key is the same in all of them, with two exceptions that
compaction explains: one replica has already removed a tombstone, or one replica has removed a
record because of a later one that the other does not have yet.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import numpy as np

from spindle.audit.findings import AuditFinding, Collector, FindingKind
from spindle.audit.key_digests import KeyDigests
from spindle.audit.placement import ClusterPlacement
from spindle.audit.processes import forked_pool, submitted_to
from spindle.audit.reference_replica import (
    RightReplica,
    add_difference,
    registered_partition,
    right_replica,
)
from spindle.audit.replica import AuditedReplica
from spindle.audit.replica_comparison import committed_until, compared_until, replica_groups
from spindle.audit.replica_place import ClosingState
from spindle.audit.throttle import ReadThrottle
from spindle.columnar.tables import CONTENT, KEY_HIGH, KEY_LOW, OFFSET, TOMBSTONE

_BYTES_OF_A_BUCKET: Final = 64 << 20
_MAX_BUCKETS: Final = 256
_NAMED_KEYS: Final = 3
_NONE: Final = -1


class DifferentKey(NamedTuple):
    """A key whose latest record is not the same in two replicas.

    The key is named by a digest. The offsets are those of the latest records, -1 for none.
    """

    digest: str
    offset: int
    right_offset: int

    @property
    def text(self) -> str:
        """The difference as part of a sentence."""
        if self.offset == self.right_offset:
            return f"key {self.digest}: another value at offset {self.offset}"
        said = [
            "no record" if offset == _NONE else f"offset {offset}"
            for offset in (self.offset, self.right_offset)
        ]
        return f"key {self.digest}: {said[0]} here, {said[1]} there"


def compare_compacted(
    replicas: Sequence[AuditedReplica],
    placement: ClusterPlacement | None,
    *,
    jobs: int,
    pause_ms: int,
    throttle: ReadThrottle,
) -> list[AuditFinding]:
    """Return the compacted replicas whose latest records differ from the reference replica.

    Args:
        placement: names the leader and the ISR, if known.
        jobs: processes that compare at the same time, each the replicas of one partition.
        pause_ms: the wait before replicas of directories in use are read again.
        throttle: the limits of the log directories, which the processes share.
    """
    findings = Collector()
    groups = replica_groups(replicas, are_compacted=True)
    compared = _compared(list(groups.values()), jobs, _Comparing(pause_ms, throttle))
    for ((partition, topic_id), group), different_keys in zip(
        groups.items(), compared, strict=True
    ):
        if different_keys is None:
            _add_killed(findings, group)
            continue
        # For each replica, the count of those with the same latest records, itself included.
        votes = [
            sum(not different_keys.get((index, other)) for other in range(len(group)))
            for index in range(len(group))
        ]
        different = {
            (index, other)
            for index, other in different_keys
            if group[index].place.node_id != group[other].place.node_id
        }
        if not different:
            continue
        registered = registered_partition(placement, partition, topic_id)
        right = right_replica(group, votes, different, registered)
        for index, replica in enumerate(group):
            if (index, right.index) in different:
                keys = sorted(different_keys[index, right.index], key=_last_offset)
                _add(findings, replica, group[right.index], right, keys)
    return findings.found


Differences = dict[tuple[int, int], set[DifferentKey]]
"""The keys that differ, by (index of the replica, index of the reference replica)."""


@dataclass(frozen=True, slots=True)
class _Comparing:
    """Compares the replicas of a partition."""

    pause_ms: int
    throttle: ReadThrottle

    def differences(self, group: Sequence[AuditedReplica]) -> Differences:
        """Return the differences; compare twice if a broker may be running."""
        try:
            differences = _differences(group, self.throttle.wait)
            if differences and any(replica.place.state is ClosingState.IN_USE for replica in group):
                time.sleep(self.pause_ms / 1000)
                again = _differences(group, self.throttle.wait)
                differences = {
                    pair: differences[pair] & again[pair]
                    for pair in differences.keys() & again.keys()
                }
        except OSError:
            return {}  # moved, deleted or unreadable, which the audit of the replica reports
        return differences


_comparing: list[_Comparing] = []
"""The object of a worker process; empty in other processes."""


def _compared(
    groups: Sequence[Sequence[AuditedReplica]], jobs: int, comparing: _Comparing
) -> list[Differences | None]:
    """Return the differences of each group; None for a group whose process was killed."""
    if jobs == 1 or len(groups) < 2:
        return [comparing.differences(group) for group in groups]
    context = get_context("fork")
    different_keys: list[Differences | None] = []
    with forked_pool(min(jobs, len(groups)), context, _comparing.append, comparing) as pool:
        for future in [submitted_to(pool, _compare_in_worker, group) for group in groups]:
            try:
                different_keys.append(future.result())
            except BrokenProcessPool:
                different_keys.append(None)
    return different_keys


def _compare_in_worker(group: Sequence[AuditedReplica]) -> Differences:
    return _comparing[0].differences(group)


def _add_killed(findings: Collector, group: Sequence[AuditedReplica]) -> None:
    for replica in group:
        findings.replica = str(replica.place.path)
        findings.add(
            FindingKind.UNREADABLE,
            replica.place.path,
            "its latest records were not compared with those of other replicas: a process of the "
            "audit was killed, perhaps because there was no memory left",
        )


def _last_offset(key: DifferentKey) -> int:
    return max(key.offset, key.right_offset)


def _add(
    findings: Collector,
    replica: AuditedReplica,
    best: AuditedReplica,
    right: RightReplica,
    keys: Sequence[DifferentKey],
) -> None:
    named = "; ".join(key.text for key in keys[:_NAMED_KEYS])
    more = f"; and {len(keys) - _NAMED_KEYS} more" if len(keys) > _NAMED_KEYS else ""
    add_difference(
        findings,
        replica,
        best,
        right,
        what="the latest records of its keys",
        details=f": {named}{more}",
        offset=_last_offset(keys[0]),
    )


def _differences(
    group: Sequence[AuditedReplica], throttle: Callable[[Path, int], None]
) -> Differences:
    """Return the keys that differ in each pair of replicas.

    Raises:
        OSError: a replica is gone, or cannot be read.
    """
    largest_bytes = max(replica.size_bytes for replica in group)
    count = 1
    while count < _MAX_BUCKETS and count * _BYTES_OF_A_BUCKET < largest_bytes:
        count *= 2
    different_keys: Differences = {}
    with TemporaryDirectory(prefix="spindle-audit-") as folder:
        logs = []
        for index, replica in enumerate(group):
            log = KeyDigests(Path(folder) / str(index), count)
            root = replica.place.path.parent
            log.read(replica.place.path, partial(throttle, root))
            logs.append(log)
        start = max(replica.start_offset for replica in group)
        agreed = [compared_until(group, one, other) for one, other in combinations(group, 2)]
        end = min([committed_until(group) or min(agreed), *(log.stable_end for log in logs)])
        for number in range(count):
            latest = [_latest(log.bucket(number), end) for log in logs]
            for index, mine in enumerate(latest):
                for other, theirs in enumerate(latest):
                    if other != index:
                        keys = _different(
                            _Side(mine, _is_ahead(group[index], end)),
                            _Side(theirs, _is_ahead(group[other], end)),
                            start,
                        )
                        different_keys.setdefault((index, other), set()).update(keys)
    return {pair: keys for pair, keys in different_keys.items() if keys}


def _is_ahead(replica: AuditedReplica, end: int) -> bool:
    """Return whether the replica was compacted beyond the offsets that are compared."""
    return (replica.place.checkpointed.cleaner or 0) > end


class _Latest(NamedTuple):
    """The latest record of each key below an offset, -1 for none; and whether later ones exist."""

    keys: Any
    offsets: Any
    contents: Any
    has_later: Any


def _latest(rows: Any, end: int) -> _Latest:
    keys = rows[:, [KEY_HIGH, KEY_LOW]].copy().view("S16").ravel()
    unique, inverse = np.unique(keys, return_inverse=True)
    offsets = np.full(len(unique), _NONE, np.int64)
    contents = np.zeros(len(unique), np.int64)
    is_before = rows[:, OFFSET] < end
    # The rows are sorted by offset; the last of several assignments to an index remains.
    offsets[inverse[is_before]] = rows[is_before, OFFSET]
    contents[inverse[is_before]] = rows[is_before, CONTENT]
    has_later = np.zeros(len(unique), bool)
    has_later[inverse[~is_before]] = True
    return _Latest(unique, offsets, contents, has_later)


class _Side(NamedTuple):
    """A replica in a comparison, and whether it was compacted beyond the compared offsets."""

    latest: _Latest
    is_ahead: bool

    def at(self, keys: Any) -> _Latest:
        """Return the latest records of keys, also of those that the replica does not have."""
        own = self.latest
        if not len(own.keys):
            none = np.full(len(keys), _NONE, np.int64)
            return _Latest(keys, none, np.zeros_like(none), np.zeros(len(keys), bool))
        index = np.minimum(own.keys.searchsorted(keys), len(own.keys) - 1)
        is_there = own.keys[index] == keys
        return _Latest(
            keys,
            np.where(is_there, own.offsets[index], _NONE),
            np.where(is_there, own.contents[index], TOMBSTONE),
            is_there & own.has_later[index],
        )


def _different(mine: _Side, theirs: _Side, start: int) -> list[DifferentKey]:
    """Return the keys whose latest records differ in a way that compaction does not explain."""
    keys = np.union1d(mine.latest.keys, theirs.latest.keys)
    a, b = mine.at(keys), theirs.at(keys)
    is_wrong = (a.offsets != b.offsets) | (a.contents != b.contents)
    is_wrong &= np.maximum(a.offsets, b.offsets) >= start
    for (older, side), (newer, _) in (((a, mine), (b, theirs)), ((b, theirs), (a, mine))):
        is_older = older.offsets < newer.offsets
        is_absent = older.offsets == _NONE
        is_wrong &= ~(is_older & older.has_later)
        is_wrong &= ~(is_older & is_absent & (newer.contents == TOMBSTONE))
        if side.is_ahead:
            is_wrong &= ~(is_older & is_absent)
    return [
        DifferentKey(
            keys[index].ljust(16, b"\0").hex(), int(a.offsets[index]), int(b.offsets[index])
        )
        for index in np.flatnonzero(is_wrong).tolist()
    ]
