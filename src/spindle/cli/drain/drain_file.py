"""The file of a drain that is under way: what a later run must undo or wait for.

Everything else is asked from the cluster, so a drain that was killed goes on where it was.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from spindle.cli.failure import CommandFailed


@dataclass(slots=True)
class DrainFile:
    """The content of the file.

    Attributes:
        place: `BROKER` or `BROKER:DIR`.
        cordoned: the entries of `cordoned.log.dirs` that this drain has set or is about to set.
        topics: those whose replicas may have throttles.
        brokers: those that may have throttles.
        round: the text of the round that may be under way, in the format of Kafka's tool.
    """

    path: Path
    cluster_id: str
    place: str
    cordoned: list[str] = field(default_factory=list)
    topics: list[str] = field(default_factory=list)
    brokers: list[int] = field(default_factory=list)
    round: str = ""

    def save(self) -> None:
        """Replace the file in one step, so that a kill leaves the old or the new one."""
        document = {key: value for key, value in asdict(self).items() if key != "path"}
        new = self.path.with_name(f"{self.path.name}.new")
        with new.open("w", encoding="utf-8") as file:
            json.dump(document, file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.path)

    def end(self) -> None:
        """Remove the file, or keep the brokers in it whose throttles are still to be removed."""
        self.cordoned, self.topics, self.round = [], [], ""
        if self.brokers:
            self.save()
        else:
            self.path.unlink(missing_ok=True)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep other drains from the file, which they would replace by what they know.

    Raises:
        CommandFailed: a drain runs that uses the file.
    """
    lock = path.with_name(f"{path.name}.lock")
    with lock.open("w", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CommandFailed(f"another drain is running, which uses {path}") from None
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


def open_drain_file(path: Path, cluster_id: str, place: str) -> DrainFile:
    """Return what an earlier run of the same drain has left, or a new file that is not saved yet.

    Raises:
        CommandFailed: the file is of another drain, or no such file.
    """
    if not path.exists():
        return DrainFile(path, cluster_id, place)
    try:
        found = DrainFile(path=path, **json.loads(path.read_text(encoding="utf-8")))
        lists = (found.cordoned, found.topics, found.brokers)
        if not isinstance(found.round, str) or not all(isinstance(each, list) for each in lists):
            raise TypeError(path)
    except (ValueError, TypeError, RecursionError):
        raise CommandFailed(f"{path} is not the file of a drain") from None
    if (found.cluster_id, found.place) != (cluster_id, place):
        raise CommandFailed(
            f"{path} is of the drain of {found.place} in cluster {found.cluster_id}, not of "
            f"{place} in {cluster_id}; name another file with --state"
        )
    return found
