"""Replace segments by the compacted ones that were made from them.

A kill or a power failure is safe at every point. A load completes the exchange of the new segments
whose files are all called `.swap`, up to the first one that still has a `.cleaned` file, and undoes
the others (see `recovery`). Two rules follow:

* No old segment is removed before all `.swap` names are on the device.
* A load removes every segment between two `.swap` files, because they replace it. So the final
  names of a new segment are on the device before the next exchange begins.
"""

from spindle.common.ports import FileSystem
from spindle.log.cleaning.cleaning import CleanedGroup, CleaningResult
from spindle.log.formats.names import CLEANED_SUFFIX, SWAP_SUFFIX
from spindle.log.log import Log
from spindle.log.segments.segment import Segment


def put_in_place(result: CleaningResult, now_ms: int) -> bool:
    """Exchange the segments and end the pass. Runs on the directory's thread.

    Returns:
        False if the log was truncated, renamed or deleted since the plan was made: the result is
        then useless, and its files have to be removed.
    """
    log = result.plan.log
    log.end_cleaning()
    if result.plan.signal.is_aborted:
        return False
    for _, cleaned in result.groups:
        cleaned.use(log.handles)
        cleaned.rename_suffix(CLEANED_SUFFIX, SWAP_SUFFIX)
    _sync(log)
    for group in result.groups:
        _exchange(log, group, now_ms)
    return True


def _exchange(log: Log, group: CleanedGroup, now_ms: int) -> None:
    cleaned = group.cleaned
    due_ms = now_ms + log.config.file_delete_delay_ms
    for source in group.sources:
        log.segments.remove(source.segment)
        if source.base_offset == cleaned.base_offset:
            # The producer snapshot at this base belongs to the new segment as well.
            _discard_files(log, source.segment, due_ms)
        else:
            log.discard(source.segment, due_ms)
    cleaned.rename_suffix(SWAP_SUFFIX, "")
    log.segments.add(cleaned)
    _sync(log)


def _discard_files(log: Log, segment: Segment, due_ms: int) -> None:
    log.delete_later(segment.mark_deleted(), due_ms, segment.size_bytes)


def _sync(log: Log) -> None:
    file_system: FileSystem = log.handles.file_system
    file_system.sync_directory(log.path)
