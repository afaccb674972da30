"""The metadata log and its snapshots on the disk.

All methods run on the metadata directory's I/O thread. An ordinary partition log has the records.
This module adds the snapshots, the quorum-state file and the deletion of old snapshots (KIP-630).
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from spindle.common.errors import CorruptLog, UnsupportedMetadata
from spindle.common.ids import OffsetAndEpoch
from spindle.common.ports import Bytes, FileSystem
from spindle.metadata_log import quorum_state, snapshots
from spindle.metadata_log.partition_log import PartitionLog
from spindle.metadata_log.snapshots import SnapshotInfo, SnapshotPart
from spindle.protocol.records.batch import batches
from spindle.raft.kraft_records import apply_to_history
from spindle.raft.log_view import BOOTSTRAP_SNAPSHOT_ID, LogView
from spindle.raft.ready import ElectionState
from spindle.raft.settings import StoredState
from spindle.raft.voters import VoterHistory, VoterSet

_SCAN_BYTES: Final = 1 << 20
_SNAPSHOT_HEAD_BYTES: Final = 1 << 20
_DELETED_SNAPSHOT_DELAY_MS: Final = 60_000
_FETCHED_TOKEN: Final = "fetched"


class UnfitSnapshot(Exception):
    """A snapshot that came from another node is damaged; the local disk is not at fault."""


class RetentionSettings(NamedTuple):
    """`metadata.max.retention.bytes` and `.ms`; -1 is no limit."""

    max_bytes: int = 100 << 20
    max_ms: int = 7 * 24 * 60 * 60 * 1000


class MetadataLog:
    """The metadata directory's `__cluster_metadata-0`."""

    def __init__(
        self,
        file_system: FileSystem,
        directory: str,
        storage: PartitionLog,
        retention: RetentionSettings = RetentionSettings(),  # noqa: B008 - immutable
    ) -> None:
        self.directory = directory
        self._file_system = file_system
        self._storage = storage
        self._retention = retention
        self._snapshots: list[OffsetAndEpoch] = []
        self._deleted: list[tuple[int, str]] = []
        self._part: SnapshotPart | None = None

    # ------------------------------------------------------------ start

    def load(self, static_voters: VoterSet) -> StoredState:
        """Bring log and snapshots into agreement and read the quorum's state.

        Everything that is returned is on the device: the caller acknowledges it.

        Raises:
            CorruptLog: a file is malformed.
        """
        self._find_snapshots()
        self._flush_loaded()
        self._drop_log_behind_snapshot()
        view = LogView(
            self._storage.log_start_offset,
            self._storage.log_end_offset,
            self._storage.epoch_entries(),
            self._snapshots,
        )
        return StoredState(self.read_election_state(), view, self._read_history(static_voters))

    def _find_snapshots(self) -> None:
        for name in self._file_system.list_directory(self.directory):
            snapshot_id = snapshots.parse_snapshot_file_name(name)
            if snapshot_id is not None:
                self._snapshots.append(snapshot_id)
            elif name.endswith((snapshots.PART_SUFFIX, snapshots.DELETED_SUFFIX)):
                self._file_system.remove(f"{self.directory}/{name}")
        self._snapshots.sort()

    def _flush_loaded(self) -> None:
        """Flush the writes of an earlier process, which may not have flushed them.

        A process that is killed between an append and its flush, or between the rename of a
        snapshot and the sync of the directory, leaves files that the next process reads although
        no device holds them yet. This comes before any file is removed, so that a snapshot is safe
        before the log that it replaces is gone.
        """
        self._storage.flush()
        self._file_system.sync_directory(self.directory)

    def _drop_log_behind_snapshot(self) -> None:
        """Empty a log that ends before the newest snapshot; remove snapshots before the log.

        Raises:
            CorruptLog: the snapshot that has to take the log's place is damaged; the log stays.
        """
        storage = self._storage
        if self._snapshots:
            newest = self._snapshots[-1]
            entries = storage.epoch_entries()
            if newest != BOOTSTRAP_SNAPSHOT_ID and (
                newest.offset > storage.log_end_offset
                or (entries and newest.epoch > entries[-1][0])
            ):
                path = self.snapshot_path(newest)
                for _ in snapshots.check_snapshot(self.read_snapshot_bytes(newest), path):
                    pass
                storage.truncate_fully_and_start_at(newest.offset)
        start_offset = storage.log_start_offset
        for snapshot_id in list(self._snapshots[:-1]):
            if snapshot_id.offset < start_offset:
                self._file_system.remove(self.snapshot_path(snapshot_id))
                self._snapshots.remove(snapshot_id)

    def _read_history(self, static_voters: VoterSet) -> VoterHistory:
        history = VoterHistory(static_voters)
        offset = self._storage.log_start_offset
        if self._snapshots:
            newest = self._snapshots[-1]
            info = self.read_info(newest)
            history.add_kraft_version(newest.offset - 1, info.kraft_version)
            if info.voters is not None:
                history.add_voters(newest.offset - 1, info.voters)
            offset = max(offset, newest.offset)
        for records in self._scan(offset):
            apply_to_history(records, history, history.add_voters)
        return history

    def _scan(self, offset: int) -> Iterator[Bytes]:
        from_offset = offset
        while from_offset < self._storage.log_end_offset:
            records = self._storage.read(from_offset, _SCAN_BYTES)
            from_offset = next_offset_after(records, self.directory)
            yield records

    # ------------------------------------------------------------ quorum-state

    def read_election_state(self) -> ElectionState | None:
        path = self._quorum_state_path()
        if not self._file_system.exists(path):
            return None
        return quorum_state.decode_quorum_state(self._file_system.read_bytes(path), path)

    def write_election_state(self, state: ElectionState, kraft_version: int) -> None:
        data = quorum_state.encode_quorum_state(state, kraft_version)
        self._file_system.write_atomically(self._quorum_state_path(), data)

    def _quorum_state_path(self) -> str:
        return f"{self.directory}/{quorum_state.FILE_NAME}"

    # ------------------------------------------------------------ log

    @property
    def start_offset(self) -> int:
        return self._storage.log_start_offset

    @property
    def end_offset(self) -> int:
        return self._storage.log_end_offset

    def append(self, batches: Bytes, now_ms: int) -> None:
        self._storage.append(batches, now_ms)

    def truncate_to(self, offset: int) -> None:
        self._storage.truncate_to(offset)

    def flush(self) -> None:
        self._storage.flush()

    def read(self, offset: int, max_bytes: int) -> Bytes:
        return self._storage.read(offset, max_bytes)

    def close(self) -> None:
        if self._part is not None:
            self._part.abort()
            self._part = None
        self._storage.close()

    # ------------------------------------------------------------ snapshots

    def snapshot_path(self, snapshot_id: OffsetAndEpoch) -> str:
        return f"{self.directory}/{snapshots.snapshot_file_name(snapshot_id)}"

    @property
    def snapshot_ids(self) -> tuple[OffsetAndEpoch, ...]:
        return tuple(self._snapshots)

    def read_info(self, snapshot_id: OffsetAndEpoch) -> SnapshotInfo:
        data, _ = self.read_snapshot_slice(snapshot_id, 0, _SNAPSHOT_HEAD_BYTES)
        return snapshots.read_snapshot_info(data, self.snapshot_path(snapshot_id))

    def read_snapshot_bytes(self, snapshot_id: OffsetAndEpoch) -> bytes:
        return self._file_system.read_bytes(self.snapshot_path(snapshot_id))

    def read_snapshot_slice(
        self, snapshot_id: OffsetAndEpoch, position: int, max_bytes: int
    ) -> tuple[bytes, int]:
        """Return bytes from `position`, and the size of the whole file."""
        file = self._file_system.open(self.snapshot_path(snapshot_id), writable=False)
        try:
            return file.pread(max_bytes, position), file.size()
        finally:
            file.close()

    def write_snapshot(
        self, snapshot_id: OffsetAndEpoch, content: Iterable[bytes], token: str
    ) -> None:
        """Write a snapshot of the local state under its name."""
        self.complete_part(self.write_part(snapshot_id, content, token))

    def write_part(
        self, snapshot_id: OffsetAndEpoch, content: Iterable[bytes], token: str
    ) -> SnapshotPart:
        """Write a snapshot of the local state without its name.

        This may run on another thread, beside all other methods: a large snapshot takes seconds.
        """
        return snapshots.write_part(self._file_system, self.directory, snapshot_id, content, token)

    def complete_part(self, part: SnapshotPart) -> int:
        """Give a written snapshot its name; return its size in bytes."""
        size_bytes = part.size_bytes
        part.complete()
        self._note_snapshot(part.snapshot_id)
        return size_bytes

    def write_fetched_chunk(self, snapshot_id: OffsetAndEpoch, position: int, data: Bytes) -> None:
        """Write bytes that were fetched from the leader; position 0 starts a new file."""
        if position == 0:
            if self._part is not None:
                self._part.abort()
            self._part = SnapshotPart(
                self._file_system, self.directory, snapshot_id, _FETCHED_TOKEN
            )
        part = self._part
        if part is None or part.snapshot_id != snapshot_id or part.size_bytes != position:
            raise CorruptLog(
                self.snapshot_path(snapshot_id), position, "a chunk that does not fit the others"
            )
        part.append([data])

    def install_snapshot(self, snapshot_id: OffsetAndEpoch) -> SnapshotInfo:
        """Keep the complete fetched snapshot, and restart the log at its end.

        Raises:
            UnfitSnapshot: it is damaged; it was removed and the log is as it was.
            UnsupportedMetadata: a newer release has made it; the same holds.
        """
        part = self._part
        if part is None or part.snapshot_id != snapshot_id:
            raise CorruptLog(self.snapshot_path(snapshot_id), 0, "was not being fetched")
        self._part = None
        try:
            part.check()
        except CorruptLog as error:
            part.abort()
            raise UnfitSnapshot(f"the snapshot that the leader sent: {error}") from None
        except UnsupportedMetadata:
            part.abort()
            raise
        part.complete()
        self._note_snapshot(snapshot_id)
        self._storage.truncate_fully_and_start_at(snapshot_id.offset)
        for older in self._snapshots[:-1]:
            self._remove_if_there(self.snapshot_path(older))
        self._snapshots = [snapshot_id]
        return self.read_info(snapshot_id)

    def _note_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        if snapshot_id not in self._snapshots:
            self._snapshots.append(snapshot_id)
            self._snapshots.sort()

    # ------------------------------------------------------------ clean-up

    def clean(self, high_watermark: int, now_ms: int) -> bool:
        """Delete snapshots beyond the limits and the log before the next one; return True if any.

        The newest snapshot always stays.
        """
        self._delete_expired(now_ms)
        is_changed = False
        while len(self._snapshots) >= 2:
            oldest, following = self._snapshots[0], self._snapshots[1]
            if following.offset > high_watermark or not self._is_beyond_limits(oldest, now_ms):
                break
            self._storage.advance_start(following.offset, now_ms)
            self._mark_deleted(oldest, now_ms)
            is_changed = True
        return is_changed

    def _is_beyond_limits(self, snapshot_id: OffsetAndEpoch, now_ms: int) -> bool:
        limits = self._retention
        if limits.max_bytes >= 0:
            sizes = [self._file_system.size(self.snapshot_path(known)) for known in self._snapshots]
            if self._storage.size_bytes + sum(sizes) > limits.max_bytes:
                return True
        if limits.max_ms >= 0:
            age_ms = now_ms - self.read_info(snapshot_id).last_contained_timestamp_ms
            return age_ms > limits.max_ms
        return False

    def _mark_deleted(self, snapshot_id: OffsetAndEpoch, now_ms: int) -> None:
        path = f"{self.directory}/{snapshots.deleted_file_name(snapshot_id)}"
        self._file_system.rename(self.snapshot_path(snapshot_id), path)
        self._snapshots.remove(snapshot_id)
        self._deleted.append((now_ms + _DELETED_SNAPSHOT_DELAY_MS, path))

    def _delete_expired(self, now_ms: int) -> None:
        self._storage.delete_expired(now_ms)
        while self._deleted and self._deleted[0][0] <= now_ms:
            self._remove_if_there(self._deleted.pop(0)[1])

    def _remove_if_there(self, path: str) -> None:
        """Remove a file; one that was removed by hand is no failure of the disk."""
        if self._file_system.exists(path):
            self._file_system.remove(path)


def next_offset_after(records: Bytes, path: str) -> int:
    """Return the offset after the last whole batch of `records`.

    Raises:
        CorruptLog: there is no whole batch.
    """
    last = None
    for _, header in batches(records):
        last = header.next_offset
    if last is None:
        raise CorruptLog(path, 0, "no whole batch where the log has records")
    return last
