"""The folder from which an interrupted audit on Spark continues: the parts of finished segments.

Each Spark task writes one file at its end, so the driver and all executors must see the folder. A
part is valid while the files of its segment do not change.
"""

import hashlib
import json
import os
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from spindle.audit.replica import SegmentTask
from spindle.log.formats.names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
)

T = TypeVar("T")
_SUFFIX: Final = ".audit-parts.json"
_UNFINISHED_SUFFIX: Final = ".audit-parts.unfinished"
_VERSION: Final = 3
_FILES: Final = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)


def segment_fingerprint(task: SegmentTask) -> str:
    """Return a digest of the inputs of a segment's audit; empty if the segment is gone.

    The names, sizes and times of its files, and how it is audited.
    """
    path = task.segment.path
    how = (str(path), task.snapshot_offsets, task.is_finished, task.place.checks_records)
    digest = hashlib.sha256(repr(how).encode("utf-8", "surrogateescape"))
    for suffix in _FILES:
        try:
            stat = os.stat(path.with_suffix(suffix) if suffix != LOG_SUFFIX else path)
        except OSError:
            if suffix == LOG_SUFFIX:
                return ""
            continue
        text = f"{suffix}\0{stat.st_ino}\0{stat.st_size}\0{stat.st_mtime_ns}\0{stat.st_ctime_ns}\0"
        digest.update(text.encode())
    return digest.hexdigest()


class PartFolder:
    """The parts in a folder.

    Raises:
        ValueError: the path is not a folder.
        OSError: the disk refuses.
    """

    def __init__(self, path: Path) -> None:
        if path.exists() and not path.is_dir():
            raise ValueError(f"{path} is not a folder; the parts of an audit on Spark need one")
        path.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._documents: dict[str, Any] = {}
        for file in self._files():
            try:
                document = json.loads(file.read_bytes())
                if document["version"] == _VERSION:
                    self._documents.update(document["parts"])
            except (AttributeError, KeyError, TypeError, ValueError):
                continue  # not a file of an audit, or of another version

    def _files(self) -> list[Path]:
        return sorted(self.path.glob(f"*{_SUFFIX}"))

    def find(self, fingerprint: str, read: Callable[[Any], T]) -> T | None:
        """Return the stored part, None if there is none.

        Args:
            read: parses the document of a part.
        """
        try:
            return read(self._documents[fingerprint])
        except (KeyError, TypeError, ValueError):
            return None

    def remove_parts(self) -> None:
        """Remove all parts, and the files of killed tasks, at the end of the audit.

        The next audit reads the segments again.
        """
        for file in (*self._files(), *self.path.glob(f"*{_UNFINISHED_SUFFIX}")):
            file.unlink(missing_ok=True)


def keep_parts(folder: Path, parts: Mapping[str, Any]) -> None:
    """Write the documents of the parts of a task, by fingerprint. A kill leaves all or none."""
    document = {
        "version": _VERSION,
        "parts": {name: part for name, part in parts.items() if name},
    }
    name = uuid.uuid4().hex
    unfinished = folder / f"{name}{_UNFINISHED_SUFFIX}"
    unfinished.write_text(json.dumps(document, separators=(",", ":")))
    unfinished.rename(folder / f"{name}{_SUFFIX}")
