"""The metadata log's bytes in an ordinary partition log."""

import logging
from typing import Final

from spindle.common.ids import METADATA_PARTITION
from spindle.common.ports import Bytes, FileSystem
from spindle.common.uuids import METADATA_TOPIC_ID
from spindle.log.formats.names import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    STRAY_SUFFIX,
    parse_offset_name,
)
from spindle.log.gaps import set_aside_after_gap
from spindle.log.loading import create_log, load_log
from spindle.log.log import Log
from spindle.log.log_config import LogConfig
from spindle.log.storage import LogStorage

logger = logging.getLogger(__name__)

DIRECTORY_NAME: Final = str(METADATA_PARTITION)
_MAX_BATCH_BYTES: Final = 8 << 20
_ANY_EPOCH: Final = 2**31 - 1


def metadata_log_config(
    segment_bytes: int = 1 << 30,
    segment_ms: int = 7 * 24 * 60 * 60 * 1000,
    file_delete_delay_ms: int = 60_000,
) -> LogConfig:
    """Return the settings of the log; snapshots alone decide which segments are deleted."""
    return LogConfig(
        segment_bytes=segment_bytes,
        segment_ms=segment_ms,
        max_message_bytes=_MAX_BATCH_BYTES,
        retention_ms=-1,
        retention_bytes=-1,
        file_delete_delay_ms=file_delete_delay_ms,
    )


class PartitionLog:
    """The log of the metadata partition, as `MetadataLog` uses it."""

    def __init__(self, storage: LogStorage, log: Log) -> None:
        self._storage = storage
        self._log = log
        self._flushed_segment = -1

    @classmethod
    def open(cls, storage: LogStorage, config: LogConfig, now_ms: int) -> "PartitionLog":
        """Load the log, or begin one. All of it is checked: there is no recovery checkpoint.

        Small files that a power failure left half written are replaced: before the first record
        they hold nothing, and afterwards the epochs are read from the batches.
        """
        path = f"{storage.path}/{DIRECTORY_NAME}"
        file_system = storage.file_system
        start_offset = _offset_without_records(file_system, path)
        if start_offset is None:
            log = load_log(
                storage, DIRECTORY_NAME, METADATA_PARTITION, config, now_ms, is_clean=False
            )
            if log.unverified_gaps:
                _end_at_gap(log)
            log.epochs.make_durable()
        else:
            epochs_path = f"{path}/{LEADER_EPOCH_CHECKPOINT}"
            if file_system.exists(epochs_path):
                file_system.remove(epochs_path)
            log = create_log(
                storage,
                DIRECTORY_NAME,
                METADATA_PARTITION,
                METADATA_TOPIC_ID,
                config,
                now_ms,
                start_offset,
            )
            log.begin_flush().run()
        return cls(storage, log)

    @property
    def log_start_offset(self) -> int:
        return self._log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self._log.log_end_offset

    @property
    def size_bytes(self) -> int:
        return self._log.size_bytes

    def epoch_entries(self) -> list[tuple[int, int]]:
        """Return (epoch, start offset) of each leader epoch, both rising."""
        return list(self._log.epochs.entries)

    def append(self, batches: Bytes, now_ms: int) -> None:
        """Append batches whose offsets and epochs are set."""
        self._log.append_as_follower(batches, _ANY_EPOCH, now_ms)

    def read(self, offset: int, max_bytes: int) -> Bytes:
        """Return whole batches from `offset` on, at least one; nothing at the end of the log."""
        return self._log.read(offset, max_bytes, self._log.log_end_offset).records

    def truncate_to(self, offset: int) -> None:
        """Remove the batches from `offset` on, on the device when this returns."""
        self._log.truncate_to(offset)
        self._flushed_segment = -1
        self._log.epochs.make_durable()

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove all batches; the log begins and ends at `offset`."""
        self._log.truncate_fully_and_start_at(offset)
        self._flushed_segment = -1
        self._log.begin_flush().run()

    def advance_start(self, offset: int, now_ms: int) -> None:
        """Delete the segments that end below `offset`; the log starts there."""
        self._log.update_high_watermark(offset)
        self._log.increment_log_start_offset(offset)
        self._log.delete_old_segments(now_ms)
        self._log.epochs.make_durable()

    def delete_expired(self, now_ms: int) -> None:
        """Remove the files whose deletion was put off until now."""
        self._storage.delete_expired(now_ms)

    def flush(self) -> None:
        """Flush the appended batches.

        Within one segment only its data is flushed: a start reads it completely and rebuilds the
        indexes. The first flush of a segment also syncs the names of its files.
        """
        segment = self._log.segments.active
        if segment.base_offset == self._flushed_segment:
            self._storage.handles.get(segment.path).sync()
            self._log.recovery_point = self._log.log_end_offset
        else:
            self._log.flush()
            self._flushed_segment = segment.base_offset

    def close(self) -> None:
        """Flush and close the files."""
        self._log.flush()
        self._log.close()


def _end_at_gap(log: Log) -> None:
    """End the log where records are missing: a voter may only have what follows without a gap.

    Nothing compacts this log. Records that follow a gap were either never flushed, and so never
    acknowledged, or the disk has damaged the ones before them. For the second case the files stay,
    under other names.
    """
    gap = log.unverified_gaps[0]
    logger.error(
        "%s has no records from offset %d to %d, so it ends there. Segments behind that are kept "
        "with the suffix %s; the leader or the newest snapshot has their records. If this is the "
        "only voter and it had acknowledged them, restore %s from a backup",
        log.path,
        gap.first_offset,
        gap.end_offset - 1,
        STRAY_SUFFIX,
        log.path,
    )
    set_aside_after_gap(log)


def _offset_without_records(file_system: FileSystem, path: str) -> int | None:
    """Return where a log begins that has no record yet; None if it has some."""
    start_offset = 0
    if not file_system.exists(path):
        return start_offset
    for name in file_system.list_directory(path):
        offset = parse_offset_name(name, LOG_SUFFIX)
        if offset is not None:
            if file_system.size(f"{path}/{name}"):
                return None
            start_offset = max(start_offset, offset)
    return start_offset
