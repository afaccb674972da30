"""The file from which an interrupted audit continues: the results of unchanged replicas.

Each line is the result of one replica, with a fingerprint of its files. A kill leaves at most the
last line incomplete; it is dropped. Only one audit at a time uses a file.
"""

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from spindle.audit.findings import is_unread
from spindle.audit.replica import AuditedReplica
from spindle.audit.replica_place import CheckpointedOffsets, ClosingState, ReplicaPlace
from spindle.audit.result_documents import audited_replica, result_document

_HEAD: Final = b'{"spindle audit": 2}\n'


class ProgressFile:
    """The stored results; new ones are appended as they arrive.

    `has_unread`: a replica could not be read, so the next audit must read it.
    """

    def __init__(self, descriptor: int, kept: dict[str, Any]) -> None:
        self.has_unread = False
        self._descriptor = descriptor
        self._kept = kept

    def find(self, place: ReplicaPlace) -> AuditedReplica | None:
        """Return the result of a replica; None if there is none, or its files changed."""
        try:
            return audited_replica(place, self._kept[self.fingerprint(place)])
        except (KeyError, TypeError, ValueError):
            return None

    def add(self, before: str, replica: AuditedReplica) -> None:
        """Keep a result.

        Args:
            before: the fingerprint before the replica was read. The result is not kept if its files
                have changed since, or could not be read.
        """
        if is_unread(replica.findings):
            self.has_unread = True
            return
        if not before or self.fingerprint(replica.place) != before:
            return
        entry = {"files": before, "result": result_document(replica)}
        data = memoryview(json.dumps(entry, separators=(",", ":")).encode() + b"\n")
        while data:
            data = data[os.write(self._descriptor, data) :]

    @staticmethod
    def fingerprint(place: ReplicaPlace) -> str:
        """Return a digest of the inputs of a replica's audit; empty if the replica is gone.

        The names, sizes and times of its files; how it is audited; and the checkpoints of its
        directory, which are compared with the log unless a broker is using it.
        """
        if place.state is ClosingState.IN_USE:
            place = replace(place, checkpointed=CheckpointedOffsets())
        digest = hashlib.sha256(repr(place).encode("utf-8", "surrogateescape"))
        try:
            with os.scandir(place.path) as entries:
                stats = sorted((entry.name, entry.stat(follow_symlinks=False)) for entry in entries)
        except OSError:
            return ""
        for name, stat in stats:
            text = (
                f"{name}\0{stat.st_ino}\0{stat.st_size}\0{stat.st_mtime_ns}\0{stat.st_ctime_ns}\0"
            )
            digest.update(text.encode("utf-8", "surrogateescape"))
        return digest.hexdigest()


@contextmanager
def progress_file(path: Path) -> Iterator[ProgressFile]:
    """Open or begin a progress file.

    It is removed at the end: otherwise the next audit would reuse the results and read nothing. It
    stays if the audit is interrupted, or could not read a replica.

    Raises:
        ValueError: the file has another content, or another audit is using it.
        OSError: the disk refuses.
    """
    descriptor = locked_file(path)
    try:
        progress = ProgressFile(descriptor, _begin(descriptor, path))
        yield progress
        if not progress.has_unread:
            path.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def locked_file(path: Path) -> int:
    """Open and lock a file for one audit at a time; create it if it is missing.

    If another audit ends between the two steps, it removes the file. The lock would then be on a
    removed file, so the file is opened again.

    Raises:
        ValueError: another audit is using it.
        OSError: the disk refuses.
    """
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise ValueError(f"another audit is using the file {path}") from None
        if _is_at(path, descriptor):
            return descriptor
        os.close(descriptor)


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _begin(descriptor: int, path: Path) -> dict[str, Any]:
    """Read the results, cut an incomplete last line off, and go to the end."""
    with os.fdopen(os.dup(descriptor), "rb") as file:
        head = file.readline(len(_HEAD))
        if not _HEAD.startswith(head):
            raise ValueError(f"{path} is not a progress file of an audit; give another name")
        kept, end = {}, 0
        if head == _HEAD:
            end = len(_HEAD)
            for line in file:
                try:
                    entry = json.loads(line if line.endswith(b"\n") else b"")
                    kept[entry["files"]] = entry["result"]
                except (KeyError, TypeError, ValueError):
                    break
                end += len(line)
    os.ftruncate(descriptor, end)
    os.lseek(descriptor, end, os.SEEK_SET)
    if end == 0:
        os.write(descriptor, _HEAD)
    return kept
