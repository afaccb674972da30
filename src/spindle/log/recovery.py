"""Make the files of one partition consistent after a stop, a kill or a torn write.

A compaction that was interrupted is finished or undone first. After an unclean stop, every segment
that may hold unflushed data is read. Each batch must have a right checksum and be in order; the log
ends before the first batch that is not. Indexes, epochs and producers are built from the remaining
batches.
"""

import logging
from collections.abc import Iterable
from typing import Final

from spindle.common.errors import CorruptLog, CorruptRecords
from spindle.log.formats.index_entries import MAX_RELATIVE_OFFSET
from spindle.log.formats.names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    offset_name,
    parse_offset_name,
)
from spindle.log.formats.transaction_index import AbortedTransaction
from spindle.log.leader_epochs import LeaderEpochs
from spindle.log.log_config import LogConfig
from spindle.log.open_files import FileHandles
from spindle.log.producers.state import ProducerState
from spindle.log.segments.segment import SEGMENT_SUFFIXES, Segment
from spindle.protocol.records.batch import BatchHeader, check_crc

logger = logging.getLogger(__name__)

_TEMPORARY_SUFFIX: Final = ".tmp"
_INTERRUPTED_SUFFIXES: Final = (DELETED_SUFFIX, _TEMPORARY_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX)


def settle_interrupted_work(handles: FileHandles, directory: str, config: LogConfig) -> list[str]:
    """Complete or undo an interrupted deletion or compaction; return the remaining file names."""
    files = handles.file_system
    names = files.list_directory(directory)
    if not any(name.endswith(_INTERRUPTED_SUFFIXES) for name in names):
        return names
    _remove(handles, directory, _ending_with(names, DELETED_SUFFIX, _TEMPORARY_SUFFIX))
    cleaned = _ending_with(names, CLEANED_SUFFIX)
    swaps = _ending_with(names, SWAP_SUFFIX)
    if cleaned:
        # Swap files at or above the first cleaned segment were not complete as a group.
        first_cleaned = min(_base_offset(name) for name in cleaned)
        undone = [name for name in swaps if _base_offset(name) >= first_cleaned]
        _remove(handles, directory, [*cleaned, *undone])
        swaps = [name for name in swaps if name not in undone]
    if swaps:
        _complete_swap(handles, directory, swaps, names, config)
    if len(swaps) + len(cleaned) == 0:
        return [name for name in names if not name.endswith((DELETED_SUFFIX, _TEMPORARY_SUFFIX))]
    return files.list_directory(directory)


def _complete_swap(
    handles: FileHandles, directory: str, swaps: list[str], names: list[str], config: LogConfig
) -> None:
    """Replace the segments that the swap segments cover."""
    logs = _ending_with(swaps, LOG_SUFFIX + SWAP_SUFFIX)
    covered: list[tuple[int, int]] = []
    for name in logs:
        base_offset = _base_offset(name)
        segment = Segment(handles, directory, base_offset, config, 0, SWAP_SUFFIX)
        segment.size_bytes = handles.file_system.size(segment.path)
        next_offset, _ = segment.end_of_batches()
        covered.append((base_offset, next_offset))
        handles.release(segment.path)
    if covered:
        start = min(base for base, _ in covered)
        end = max(next_offset for _, next_offset in covered)
        replaced = [
            name
            for name in names
            if name.endswith(SEGMENT_SUFFIXES) and start <= _base_offset(name) < end
        ]
        _remove(handles, directory, replaced)
    for name in swaps:
        target = f"{directory}/{name.removesuffix(SWAP_SUFFIX)}"
        handles.file_system.rename(f"{directory}/{name}", target)


def is_whole(segment: Segment) -> bool:
    """Return whether the segment's file consists of batches to its end, by a quick check."""
    try:
        _, end = segment.end_of_batches()
    except CorruptLog:
        return False
    return end == segment.size_bytes


def _ending_with(names: list[str], *suffixes: str) -> list[str]:
    return [name for name in names if name.endswith(suffixes)]


def _base_offset(name: str) -> int:
    return int(name.partition(".")[0])


def _remove(handles: FileHandles, directory: str, names: Iterable[str]) -> None:
    for name in names:
        handles.release(f"{directory}/{name}")
        handles.file_system.remove(f"{directory}/{name}")


def open_segments(
    handles: FileHandles, directory: str, names: list[str], config: LogConfig, now_ms: int
) -> tuple[list[Segment], list[Segment]]:
    """Return all segments in order, and those among them whose indexes have to be rebuilt.

    Index files without a segment are removed.
    """
    sizes: dict[int, dict[str, int]] = {}
    for name in names:
        suffix = name[name.find(".") :]
        base_offset = parse_offset_name(name, suffix) if suffix in SEGMENT_SUFFIXES else None
        if base_offset is not None:
            size = handles.file_system.size(f"{directory}/{name}")
            sizes.setdefault(base_offset, {})[suffix] = size
    segments: list[Segment] = []
    unsound: list[Segment] = []
    for base_offset, sizes_of_segment in sorted(sizes.items()):
        if LOG_SUFFIX not in sizes_of_segment:
            orphans = [offset_name(base_offset, suffix) for suffix in sizes_of_segment]
            _remove(handles, directory, orphans)
            continue
        segment = Segment(handles, directory, base_offset, config, now_ms)
        if not segment.open(sizes_of_segment):
            unsound.append(segment)
        segments.append(segment)
    return segments, unsound


def recover_segment(segment: Segment, epochs: LeaderEpochs, producers: ProducerState) -> bool:
    """Check every batch, build indexes and state from them, cut at the first bad one.

    Args:
        producers: the state before the segment; afterwards that at its end.

    Returns:
        True if something had to be cut off: later segments do not continue this one then.
    """
    segment.reset_indexes()
    segment.suspect_reserved_space()
    end = 0
    next_offset = segment.base_offset
    reason = "a batch out of order or not whole"
    try:
        for position, header, data in segment.scan():
            check_crc(data, 0, header)
            if header.base_offset < next_offset or header.last_offset_delta < 0:
                break
            if header.next_offset - 1 - segment.base_offset > MAX_RELATIVE_OFFSET:
                # The CRC does not cover the offset. No writer leaves such a batch in a segment.
                reason = f"offset {header.base_offset} is too far from the base of its segment"
                break
            aborted = _replay(producers, header, data)
            if aborted is not None:
                segment.transaction_index.append(aborted)
            latest = epochs.latest
            if header.leader_epoch >= 0 and (latest is None or header.leader_epoch > latest):
                epochs.assign(header.leader_epoch, header.base_offset)
            segment.note_batch(position, header)
            next_offset = header.next_offset
            end = position + header.size_bytes
    except (CorruptLog, CorruptRecords) as error:
        # A torn write follows the last good batch; the log ends before it.
        reason = str(error)
    producers.map_end_offset = next_offset
    is_torn = end < segment.size_bytes
    if is_torn:
        logger.warning(
            "%s is cut from %d to %d bytes, its end offset is %d: %s",
            segment.path,
            segment.size_bytes,
            end,
            next_offset,
            reason,
        )
        segment.cut(end)
    segment.become_inactive()
    return is_torn


def _replay(
    producers: ProducerState, header: BatchHeader, data: memoryview
) -> AbortedTransaction | None:
    completed = producers.replay(data, 0, header)
    if completed is None or not completed.is_aborted:
        return None
    return AbortedTransaction(
        completed.producer_id,
        completed.first_offset,
        completed.last_offset,
        producers.last_stable_offset_after(completed),
    )
