"""Audit of the files of one segment: one pass over the batches, compared with the indexes."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spindle.audit.findings import Collector, FindingKind
from spindle.audit.index_files import IndexContent, read_index
from spindle.audit.record_checks import RecordChecks
from spindle.audit.segment_part import SegmentPart
from spindle.audit.sound_walk import SoundPrefix, sound_prefix
from spindle.columnar.segment_files import SegmentFile
from spindle.common.errors import CorruptLog
from spindle.log.formats.names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
)
from spindle.log.formats.transaction_index import (
    ENTRY_BYTES,
    AbortedTransaction,
    decode_aborted_transactions,
)

if TYPE_CHECKING:
    from spindle.audit.column_checks import ColumnChecks


class SegmentAudit:
    """Audits one segment of a log independently; `merge` joins the parts.

    Args:
        replica: the directory of the replica, for its findings.
        snapshot_offsets: of all producer snapshots of the log, ascending.
        checks_records: the records are decoded, too.
        on_bytes: called with the bytes of batches as they are read.
    """

    def __init__(
        self,
        replica: Path,
        segment: SegmentFile,
        snapshot_offsets: Sequence[int],
        *,
        checks_records: bool,
        on_bytes: Callable[[int], None],
    ) -> None:
        self._segment = segment
        self._findings = Collector(str(replica))
        self._snapshot_offsets = snapshot_offsets
        self._index_path = segment.path.with_suffix(TRANSACTION_INDEX_SUFFIX)
        self._records = RecordChecks(self._findings, segment.path) if checks_records else None
        self._on_bytes = on_bytes
        self._prefix = SoundPrefix(segment.path, segment.base_offset)
        self._columns: ColumnChecks | None = None

    def run(self, *, is_finished: bool) -> SegmentPart:
        """Read the segment; read errors become findings.

        Args:
            is_finished: the segment was rolled or closed cleanly, so no batch may be torn, and its
                indexes are trimmed.
        """
        is_gone = False
        try:
            self._audit(is_finished=is_finished)
        except FileNotFoundError:
            is_gone = True
        except OSError as error:
            self._findings.add_unreadable(self._segment.path, error)
        batches = (self._columns or self._prefix).result()
        return SegmentPart(
            self._segment.path,
            self._segment.base_offset,
            tuple(self._findings.found),
            dict(self._findings.left_out),
            *batches[:-1],
            is_gone,
            batches.index_tail,
        )

    def _audit(self, *, is_finished: bool) -> None:
        path = self._segment.path
        # Read the indexes first: all of their batches are then in the log.
        is_plain = path.name.endswith(LOG_SUFFIX)
        offset_index = self._index(path, INDEX_SUFFIX) if is_plain else None
        time_index = self._index(path, TIME_INDEX_SUFFIX) if is_plain else None
        aborted_data = (_read(self._index_path) if is_plain else None) or b""
        entries = self._aborted(aborted_data)
        with path.open("rb", buffering=0) as file:
            size_bytes = os.fstat(file.fileno()).st_size
            if offset_index is not None and time_index is not None and not aborted_data:
                self._prefix = sound_prefix(
                    file,
                    size_bytes,
                    self._prefix,
                    (offset_index, time_index),
                    self._snapshot_offsets,
                    is_finished=is_finished,
                    records=self._records,
                    on_bytes=self._on_bytes,
                )
            if not self._prefix.is_whole:
                self._check_columns(
                    file, size_bytes, offset_index, time_index, entries, is_finished=is_finished
                )

    def _check_columns(
        self,
        file: Any,
        size_bytes: int,
        offset_index: IndexContent | None,
        time_index: IndexContent | None,
        entries: Sequence[AbortedTransaction] | None,
        *,
        is_finished: bool,
    ) -> None:
        from spindle.audit.column_checks import (
            ColumnChecks,
        )  # needs NumPy, so only for an unusual batch

        self._columns = ColumnChecks(
            self._findings,
            self._prefix,
            (offset_index, time_index),
            self._snapshot_offsets,
            entries,
            self._records,
            is_finished=is_finished,
        )
        self._columns.run(file, size_bytes, self._on_bytes)

    def _index(self, segment: Path, suffix: str) -> IndexContent | None:
        path = segment.with_suffix(suffix)
        data = read_index(path)
        if data is None:
            is_offset_index = suffix == INDEX_SUFFIX
            kind = (
                FindingKind.OFFSET_INDEX_MISSING
                if is_offset_index
                else FindingKind.TIME_INDEX_MISSING
            )
            self._findings.add(kind, path, "the segment has no such file")
        return data

    def _aborted(self, data: bytes) -> list[AbortedTransaction] | None:
        """Return the entries of the transaction index, None if they cannot be read."""
        path, kind = self._index_path, FindingKind.TRANSACTION_INDEX_FILE
        if len(data) % ENTRY_BYTES:
            whole = len(data) - len(data) % ENTRY_BYTES
            evidence = f"{len(data)} bytes are not a multiple of an entry's {ENTRY_BYTES}"
            self._findings.add(kind, path, evidence, position=whole)
        try:
            return decode_aborted_transactions(str(path), data)
        except CorruptLog as error:
            self._findings.add(kind, path, error.finding, position=error.position)
            return None


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
