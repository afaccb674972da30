"""The history of a scheduled audit (scrub): when each replica was read, and its findings.

A run first reads the replicas that were read longest ago, and starts no new one after its time
limit, so that the next run continues there. The file has one line of JSON for each reading,
appended when it has ended; a run begins by rewriting the file with the last line of each replica. A
kill leaves at most the last line incomplete, which is dropped.

A replica is known by its path, the id of its log directory and its inode: a log that was copied to
another disk, moved there or rebuilt was not read yet, although it has the name of one that was.
"""

import fcntl
import json
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, Final

from spindle.audit.findings import AuditFinding, is_unread
from spindle.audit.progress_file import locked_file
from spindle.audit.replica import AuditedReplica
from spindle.audit.replica_place import ReplicaPlace
from spindle.audit.spark_checkpoint_format import finding_rows, findings_of
from spindle.common.errors import ConfigError
from spindle.common.uuids import uuid_text
from spindle.log.formats.meta_properties import META_PROPERTIES, parse_meta_properties

_HEAD: Final = b'{"spindle scrub": 2}\n'
_NEW_SUFFIX: Final = ".new"
_DAY_MS: Final = 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class ScrubbedReplica:
    """The history of one replica.

    Attributes:
        path: its directory.
        identity: of its directory, see `identity_of`.
        seen_ms: when a run saw it for the first time, in ms since 1970.
        read_ms: when the last complete reading of it began; None if there was none.
        findings: of the last complete reading.
    """

    path: Path
    identity: str
    seen_ms: int
    read_ms: int | None = None
    findings: tuple[AuditFinding, ...] = ()

    @property
    def checked_ms(self) -> int:
        """Time of the last reading, or when the replica was first seen if it was never read."""
        return self.seen_ms if self.read_ms is None else self.read_ms


@dataclass(frozen=True, slots=True)
class OverdueReplica:
    """An overdue replica, and the names of its segments."""

    path: Path
    days: int
    was_read: bool
    files: tuple[str, ...]


class ScrubHistory:
    """The history of the replicas of some log directories.

    Args:
        file: the open file, at its end.
        known: its entries, by the directory of the replica.
        clock_ms: returns the time in ms since 1970.
        until_ms: no reading starts after this time; None for no limit.
    """

    def __init__(
        self,
        descriptor: int,
        known: dict[Path, ScrubbedReplica],
        clock_ms: Callable[[], int],
        until_ms: int | None,
    ) -> None:
        self._descriptor = descriptor
        self._known = known
        self._clock_ms = clock_ms
        self._until_ms = until_ms
        self.unread_count = 0

    def groups(self, places: Sequence[ReplicaPlace], size: int) -> Iterator[list[ReplicaPlace]]:
        """Yield groups of replicas to read, those read longest ago first.

        The directories take turns, so that all disks are read concurrently. It ends at the time
        limit, but not before the first groups were read.

        Args:
            size: maximum number of replicas of one log directory in a group.
        """
        now_ms = self._clock_ms()
        for place in places:
            if self._entry(place) is None:
                self._note(ScrubbedReplica(place.path, identity_of(place.path), now_ms))
        lanes: dict[Path, list[ReplicaPlace]] = {}
        for place in sorted(places, key=self._order):
            lanes.setdefault(place.path.parent, []).append(place)
        groups = [
            [lane[at : at + size] for at in range(0, len(lane), size)] for lane in lanes.values()
        ]
        self.unread_count = len(places)
        for turn in zip_longest(*groups, fillvalue=()):
            group = list(chain.from_iterable(turn))
            is_first = self.unread_count == len(places)
            if not is_first and self._until_ms is not None and self._clock_ms() >= self._until_ms:
                return
            self.unread_count -= len(group)
            yield group

    def _entry(self, place: ReplicaPlace) -> ScrubbedReplica | None:
        known = self._known.get(place.path)
        return known if known is not None and known.identity == identity_of(place.path) else None

    def _order(self, place: ReplicaPlace) -> tuple[bool, int, str]:
        known = self._known[place.path]
        return known.read_ms is not None, known.checked_ms, str(place.path)

    def add(self, replica: AuditedReplica, begun_ms: int) -> None:
        """Record that a replica was read, unless parts of it, or its identity, could not be."""
        known = self._known[replica.place.path]
        if known.identity and not is_unread(replica.findings):
            self._note(replace(known, read_ms=begun_ms, findings=replica.findings))

    def now_ms(self) -> int:
        """Return the time in ms since 1970."""
        return self._clock_ms()

    def _note(self, replica: ScrubbedReplica) -> None:
        self._known[replica.path] = replica
        _write(self._descriptor, _line(replica))

    def earlier_findings(self, places: Sequence[ReplicaPlace], begun_ms: int) -> list[AuditFinding]:
        """Return the findings of existing replicas that this run did not read."""
        earlier_findings: list[AuditFinding] = []
        for place in places:
            known = self._entry(place)
            if known is not None and known.read_ms is not None and known.read_ms < begun_ms:
                earlier_findings += known.findings
        return earlier_findings

    def left_out(self, roots: Collection[Path]) -> dict[Path, int]:
        """Return the log directories that are not in `roots`, and their replicas in the history."""
        others = Counter(path.parent for path in self._known)
        return {path: others[path] for path in sorted(others) if path not in roots}

    def overdue(self, places: Sequence[ReplicaPlace], days: int) -> list[OverdueReplica]:
        """Return the replicas that were not read for `days` days, the oldest reading first."""
        now_ms = self._clock_ms()
        late = []
        for place in places:
            known = self._entry(place)
            if known is None or now_ms - known.checked_ms < days * _DAY_MS:
                continue
            try:
                files = sorted(path.name for path in place.path.glob("*.log"))
            except OSError:
                files = []  # a finding of the listing
            waited = (now_ms - known.checked_ms) // _DAY_MS
            late.append(OverdueReplica(place.path, waited, known.read_ms is not None, tuple(files)))
        return sorted(late, key=lambda each: (-each.days, each.path))


def identity_of(replica: Path) -> str:
    """Return the id of the log directory and the inode of a replica's directory.

    A part that cannot be read is empty: the replica then counts as one that was not read.
    """
    try:
        inode = str(replica.stat().st_ino)
        content = (replica.parent / META_PROPERTIES).read_bytes()
        directory_id = parse_meta_properties(content, "").directory_id
    except (OSError, ConfigError, ValueError):
        return ""
    return f"{'' if directory_id is None else uuid_text(directory_id)}/{inode}"


@contextmanager
def scrub_history(
    path: Path, present: Callable[[Path], bool], clock_ms: Callable[[], int], until_ms: int | None
) -> Iterator[ScrubHistory]:
    """Open or begin a history.

    Args:
        present: whether a replica may still exist; the others are dropped. A directory that is not
            mounted shows nothing about its replicas.

    Raises:
        ValueError: the file has another content, or another audit is using it.
        OSError: the disk refuses.
    """
    earlier = locked_file(path)
    try:
        known = {entry.path: entry for entry in _entries(earlier, path) if present(entry.path)}
        descriptor = _rewritten(path, known)
    finally:
        os.close(earlier)
    try:
        yield ScrubHistory(descriptor, known, clock_ms, until_ms)
    finally:
        os.close(descriptor)


def _entries(descriptor: int, path: Path) -> Iterator[ScrubbedReplica]:
    with os.fdopen(os.dup(descriptor), "rb") as file:
        head = file.readline(len(_HEAD))
        if not _HEAD.startswith(head):
            raise ValueError(
                f"{path} is not a history of an audit: give another FILE with --history"
            )
        for line in file:
            try:
                entry = json.loads(line if line.endswith(b"\n") else b"")
                yield ScrubbedReplica(
                    Path(entry["path"]),
                    str(entry["identity"]),
                    int(entry["seenMs"]),
                    None if entry["readMs"] is None else int(entry["readMs"]),
                    findings_of(entry["findings"]),
                )
            except (KeyError, TypeError, ValueError):
                return


def _line(replica: ScrubbedReplica) -> bytes:
    entry: Mapping[str, Any] = {
        "path": str(replica.path),
        "identity": replica.identity,
        "seenMs": replica.seen_ms,
        "readMs": replica.read_ms,
        "findings": finding_rows(replica.findings),
    }
    return json.dumps(entry, separators=(",", ":")).encode() + b"\n"


def _rewritten(path: Path, known: Mapping[Path, ScrubbedReplica]) -> int:
    """Replace the file by one with a line for each replica; return its locked descriptor.

    It is locked before it is renamed, so no other audit can use it in between.
    """
    copy = path.with_name(path.name + _NEW_SUFFIX)
    descriptor = os.open(copy, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _write(descriptor, b"".join([_HEAD, *map(_line, known.values())]))
        os.fsync(descriptor)
        os.replace(copy, path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _write(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]
