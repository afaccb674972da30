"""The producers of one partition: their last batches, and the open transactions (KIP-98).

The state is derived from the log. It is stored at the start of each segment and when the log is
closed; loading takes the newest snapshot and replays the records after it.
"""

import logging
from bisect import insort
from collections.abc import Iterable

from spindle.common.errors import ApiError, CorruptLog, CorruptRecords, ErrorCode
from spindle.common.ports import FileSystem
from spindle.log.formats.names import (
    DELETED_SUFFIX,
    PRODUCER_SNAPSHOT_SUFFIX,
    offset_name,
    parse_offset_name,
)
from spindle.log.formats.producer_snapshot import encode_producer_snapshot, read_producer_snapshot
from spindle.log.producers.append import CompletedTransaction, ProducerAppendInfo
from spindle.log.producers.entry import ProducerStateEntry
from spindle.log.producers.verification import NO_TRANSACTION, VerificationGuard
from spindle.protocol.records.batch import BatchHeader
from spindle.protocol.records.control import EndTransactionMarker, read_end_transaction
from spindle.protocol.records.record import decode_bounded
from spindle.protocol.records.validation import AppendOrigin

logger = logging.getLogger(__name__)


class ProducerState:
    """All producers of a log up to `map_end_offset` (exclusive)."""

    __slots__ = (
        "_directory",
        "_file_system",
        "_ongoing",
        "_producers",
        "_snapshots",
        "_unread",
        "_unreplicated",
        "_verifications",
        "_where",
        "map_end_offset",
    )

    def __init__(self, file_system: FileSystem, directory: str, where: object) -> None:
        self._file_system = file_system
        self._directory = directory
        self._where = where
        self._producers: dict[int, ProducerStateEntry] = {}
        self._ongoing: dict[int, int] = {}
        """First offset of each open transaction -> producer id; ascending."""
        self._unreplicated: dict[int, CompletedTransaction] = {}
        """First offset -> transaction whose marker the high watermark has not passed."""
        self._verifications: dict[int, VerificationGuard] = {}
        """Producer id -> verification in progress; never stored."""
        self._snapshots: list[int] = []
        self._unread: tuple[int, int] | None = None
        """Offsets (first, end) around damaged batches: transactions there are not known."""
        self.map_end_offset = 0

    def moved_to(self, directory: str) -> None:
        """Use the new path of the log's directory."""
        self._directory = directory

    # Reading the state.

    def get(self, producer_id: int) -> ProducerStateEntry | None:
        return self._producers.get(producer_id)

    def entries(self) -> list[ProducerStateEntry]:
        """Return all producers in the order in which they first appeared."""
        return list(self._producers.values())

    def __len__(self) -> int:
        return len(self._producers)

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of a transaction that is open or not yet replicated, or may be."""
        candidates = list(self._unreplicated)
        if self._ongoing:
            candidates.append(next(iter(self._ongoing)))
        if self._unread is not None:
            candidates.append(self._unread[0])
        return min(candidates, default=None)

    @property
    def unread(self) -> tuple[int, int] | None:
        """Offsets (first, end) around damaged batches; None without damage."""
        return self._unread

    def last_stable_offset_after(self, completed: CompletedTransaction) -> int:
        """Return the last stable offset after `completed` has ended and is replicated.

        Transactions that begin after its marker are ignored; a follower that appends several
        batches at once has them already.
        """
        behind_marker = completed.last_offset + 1
        for first_offset, producer_id in self._ongoing.items():
            if producer_id != completed.producer_id:
                return min(first_offset, behind_marker)
        return behind_marker

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Return whether a transaction of this producer and epoch is open.

        Other threads may ask as well. For them the answer can be out of date.
        """
        entry = self._producers.get(producer_id)
        return (
            entry is not None
            and entry.current_transaction_first_offset is not None
            and entry.producer_epoch == producer_epoch
        )

    def oldest_transaction_last_ms(self) -> int | None:
        """Return the timestamp of the last records of the transaction that is open for longest.

        Other threads may ask as well. For them the answer can be out of date.
        """
        for producer_id in list(self._ongoing.values()):
            entry = self._producers.get(producer_id)
            if entry is not None:
                return entry.last_timestamp_ms
        return None

    # Verifications (KIP-890).

    def begin_verification(
        self,
        producer_id: int,
        producer_epoch: int,
        sequence: int,
        now_ms: int,
        *,
        adds_partitions: bool,
    ) -> VerificationGuard | None:
        """Return the verification that the next append of a transaction needs.

        None if the transaction is open already. All batches that wait for the first append share
        one verification.

        Raises:
            ApiError: INVALID_PRODUCER_EPOCH.
        """
        self.check_epoch(producer_id, producer_epoch)
        if self.has_open_transaction(producer_id, producer_epoch):
            return None
        known = self._verifications.get(producer_id)
        if known is None:
            known = self._verifications[producer_id] = VerificationGuard(
                now_ms, sequence, producer_epoch, adds_partitions=adds_partitions
            )
        known.note(sequence, producer_epoch)
        return known

    def verification_of(self, producer_id: int) -> VerificationGuard | None:
        """Return the verification in progress of a producer."""
        return self._verifications.get(producer_id)

    def check_epoch(self, producer_id: int, producer_epoch: int) -> None:
        """Raise ApiError INVALID_PRODUCER_EPOCH if a higher epoch of the producer is known."""
        entry = self._producers.get(producer_id)
        if entry is not None and producer_epoch < entry.producer_epoch:
            raise ApiError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Epoch of producer {producer_id} in {self._where} is {producer_epoch}, which is "
                f"smaller than the last seen epoch {entry.producer_epoch}",
            )

    # Changing it.

    def prepare(self, producer_id: int, origin: AppendOrigin) -> ProducerAppendInfo:
        """Start collecting the changes of an append to a producer's state."""
        before = self._producers.get(producer_id)
        verification = self._verifications.get(producer_id)
        return ProducerAppendInfo(producer_id, before, origin, self._where, verification)

    def apply(self, append: ProducerAppendInfo) -> None:
        """Apply the changes of an append."""
        entry = append.entry
        self._producers[entry.producer_id] = entry
        if append.is_transactional:
            # The transaction is open from now on, or it is over.
            self._verifications.pop(entry.producer_id, None)
        for first_offset in append.started_transactions:
            is_last = first_offset > next(reversed(self._ongoing), -1)
            self._ongoing[first_offset] = entry.producer_id
            if not is_last:
                # A follower appends the transactions of several producers at once.
                self._ongoing = dict(sorted(self._ongoing.items()))

    def put(self, entry: ProducerStateEntry) -> None:
        """Store the state of an idempotent producer after appends."""
        self._producers[entry.producer_id] = entry

    def complete(self, transaction: CompletedTransaction) -> None:
        """End a transaction; it stays unstable until its marker is replicated."""
        self._ongoing.pop(transaction.first_offset, None)
        self._unreplicated[transaction.first_offset] = transaction

    def on_high_watermark(self, high_watermark: int) -> None:
        """Forget transactions whose markers lie below the high watermark: they are stable."""
        done = [
            first_offset
            for first_offset, transaction in self._unreplicated.items()
            if transaction.last_offset < high_watermark
        ]
        for first_offset in done:
            del self._unreplicated[first_offset]

    def replay(
        self, buffer: memoryview, position: int, header: BatchHeader
    ) -> CompletedTransaction | None:
        """Apply a batch that is in the log; return the transaction that it ended, or None."""
        if not header.has_producer_id:
            return None
        append = self.prepare(header.producer_id, AppendOrigin.REPLICATION)
        completed = None
        if header.is_control:
            marker = self._marker_in(buffer, position, header)
            if marker is None:
                return None
            completed = append.add_marker(
                marker, header, header.base_offset, NO_TRANSACTION.transaction_version
            )
        else:
            append.add_data(header, header.base_offset)
        self.apply(append)
        if completed is not None:
            self.complete(completed)
        return completed

    def note_unread(self, first_offset: int, end_offset: int) -> None:
        """Note that the batches of these offsets cannot be read.

        A transaction may have begun there. Until the log start has passed `end_offset`, the last
        stable offset stays at or below `first_offset`, and no snapshot is taken: the next load
        would take it for complete.
        """
        if self._unread is not None:
            first_offset = min(first_offset, self._unread[0])
            end_offset = max(end_offset, self._unread[1])
        self._unread = first_offset, end_offset

    def _marker_in(
        self, buffer: memoryview, position: int, header: BatchHeader
    ) -> EndTransactionMarker | None:
        """Return the marker in a control batch; None if it is of another kind, or does not parse.

        The checksum alone shows whether the bytes are those that were written.
        """
        try:
            records = decode_bounded(buffer, position, header)
            return read_end_transaction(records[0]) if records else None
        except CorruptRecords as error:
            logger.warning("a control batch of %s ends no transaction: %s", self._where, error)
            return None

    def remove_expired(self, now_ms: int, expiration_ms: int) -> None:
        """Remove producers without an open transaction that have been idle for this time.

        Remove verifications that have been in progress for this time.
        """
        expired = [
            producer_id
            for producer_id, entry in self._producers.items()
            if _is_expired(entry, now_ms, expiration_ms)
        ]
        for producer_id in expired:
            del self._producers[producer_id]
        for producer_id, verification in list(self._verifications.items()):
            if now_ms - verification.begun_ms >= expiration_ms:
                del self._verifications[producer_id]

    def on_log_start(self, log_start_offset: int) -> None:
        """Forget unreadable batches, and transactions whose markers lie below the log start."""
        if self._unread is not None and self._unread[1] <= log_start_offset:
            self._unread = None
        gone = [
            first_offset
            for first_offset, transaction in self._unreplicated.items()
            if transaction.last_offset < log_start_offset
        ]
        for first_offset in gone:
            del self._unreplicated[first_offset]
        self.map_end_offset = max(self.map_end_offset, log_start_offset)

    def adopt_state(self, other: "ProducerState") -> None:
        """Become equal to the state of another copy of the log, whose log ends at the same offset.

        That copy may have producers whose records were deleted since.
        """
        self._producers = dict(other._producers)
        self._ongoing = dict(other._ongoing)
        self._unreplicated = dict(other._unreplicated)
        self._verifications = dict(other._verifications)
        self._unread = other._unread
        if self.map_end_offset in self._snapshots:
            self._remove_snapshot(self.map_end_offset)
        self.take_snapshot()

    # Snapshots.

    def load_snapshot_names(self, names: Iterable[str]) -> None:
        """Find the snapshot files among the names of the directory."""
        offsets = (parse_offset_name(name, PRODUCER_SNAPSHOT_SUFFIX) for name in names)
        self._snapshots = sorted(offset for offset in offsets if offset is not None)

    def take_snapshot(self) -> None:
        """Store the state at `map_end_offset`, unless there is a snapshot or it is not complete.

        The write does not wait for the device. A snapshot that a power failure damaged is
        recognised by its checksum, and the log holds the same state.
        """
        offset = self.map_end_offset
        if offset == 0 or offset in self._snapshots or self._unread is not None:
            return
        file = self._file_system.open(self._path(offset), create=True)
        try:
            file.truncate(0)
            file.pwrite(encode_producer_snapshot(self._producers.values()), 0)
        finally:
            file.close()
        insort(self._snapshots, offset)

    def reload(self, log_start_offset: int, end_offset: int, now_ms: int, expiry_ms: int) -> None:
        """Load the newest snapshot at or before `end_offset`; drop snapshots out of range.

        Afterwards `map_end_offset` says from where the log has to be replayed.
        """
        self.remove_snapshots_outside(log_start_offset, end_offset)
        self.restore(log_start_offset, end_offset, now_ms, expiry_ms)

    def remove_snapshots_outside(self, log_start_offset: int, end_offset: int) -> None:
        """Remove the snapshots at or below the start and above the end."""
        for offset in [at for at in self._snapshots if not log_start_offset < at <= end_offset]:
            self._remove_snapshot(offset)

    def restore(self, log_start_offset: int, end_offset: int, now_ms: int, expiry_ms: int) -> None:
        """Like `reload`, but keeps newer snapshots: recovery may still reach their offsets."""
        self._producers.clear()
        self._ongoing.clear()
        self._unreplicated.clear()
        self._verifications.clear()
        self._unread = None
        self.map_end_offset = log_start_offset
        for offset in self._snapshots[::-1]:
            if not log_start_offset < offset <= end_offset:
                continue
            try:
                entries = read_producer_snapshot(self._file_system, self._path(offset))
            except CorruptLog:
                # An older snapshot only means more to replay.
                self._remove_snapshot(offset)
                continue
            self._load_entries(entries, now_ms, expiry_ms)
            self.map_end_offset = offset
            return

    def _load_entries(self, entries: list[ProducerStateEntry], now_ms: int, expiry_ms: int) -> None:
        kept = [entry for entry in entries if not _is_expired(entry, now_ms, expiry_ms)]
        self._producers = {entry.producer_id: entry for entry in kept}
        opened = sorted(
            (entry.current_transaction_first_offset, entry.producer_id)
            for entry in kept
            if entry.current_transaction_first_offset is not None
        )
        self._ongoing = dict(opened)

    def reset(self, offset: int) -> None:
        """Forget everything and all snapshots; the log now begins at `offset`."""
        for at in list(self._snapshots):
            self._remove_snapshot(at)
        self._producers.clear()
        self._ongoing.clear()
        self._unreplicated.clear()
        self._verifications.clear()
        self._unread = None
        self.map_end_offset = offset

    def remove_stray_snapshots(self, segment_base_offsets: Iterable[int]) -> None:
        """Keep only the snapshots at segment bases, and the newest one after the last of these."""
        bases = frozenset(segment_base_offsets)
        newest = self._snapshots[-1:]
        for offset in list(self._snapshots):
            if offset not in bases and [offset] != newest:
                self._remove_snapshot(offset)

    def mark_snapshot_deleted(self, offset: int) -> str | None:
        """Rename the snapshot at a segment's base with the segment's files; return its new path."""
        if offset not in self._snapshots:
            return None
        self._snapshots.remove(offset)
        path = self._path(offset)
        self._file_system.rename(path, path + DELETED_SUFFIX)
        return path + DELETED_SUFFIX

    def _remove_snapshot(self, offset: int) -> None:
        self._snapshots.remove(offset)
        self._file_system.remove(self._path(offset))

    def _path(self, offset: int) -> str:
        return f"{self._directory}/{offset_name(offset, PRODUCER_SNAPSHOT_SUFFIX)}"


def _is_expired(entry: ProducerStateEntry, now_ms: int, expiration_ms: int) -> bool:
    return (
        entry.current_transaction_first_offset is None
        and now_ms - entry.last_timestamp_ms >= expiration_ms
    )
