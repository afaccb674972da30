"""Ranges of segments that are on their way to clients while files change."""

import pytest
from log_builders import NOW_MS, append, new_log, new_storage

from spindle.common.errors import ShortRead
from spindle.log.log import Log
from spindle.log.log_config import LogConfig
from spindle.log.open_files import FileHandles
from spindle.log.segments.file_range import FileRange, RangeLost
from spindle.log.storage import LogStorage
from spindle.testing.filesystem import MemoryFileSystem

CONFIG = LogConfig(segment_bytes=4000, segment_index_bytes=2400, file_delete_delay_ms=0)


def filled() -> tuple[LogStorage, Log]:
    storage = new_storage()
    log = new_log(CONFIG, storage)
    for number in range(60):
        append(log, "a" * 100, at_ms=NOW_MS + number)
    return storage, log


def first_of(log: Log) -> tuple[FileRange, bytes]:
    """Return the first half of the first segment, held, and its bytes."""
    segment = log.segments.first
    file_range = segment.range_of(0, segment.size_bytes // 2)
    file_range.pin()
    return file_range, bytes(file_range.read())


def test_a_held_range_is_there_after_its_file_was_renamed_or_removed() -> None:
    storage, log = filled()
    file_range, content = first_of(log)
    log.rename("elsewhere-0")
    assert file_range.read() == content
    log.high_watermark = log.log_end_offset
    log.increment_log_start_offset(log.log_end_offset)
    assert log.delete_old_segments(NOW_MS)
    storage.delete_expired(NOW_MS + 1)
    assert file_range.read() == content
    log.mark_deleted("gone-0")
    log.delete()
    assert file_range.read() == content
    before = len(storage.handles)
    file_range.unpin()
    assert len(storage.handles) == before - 1


@pytest.mark.parametrize("has_others", [False, True])
def test_a_range_that_was_cut_is_lost_even_if_others_have_taken_its_place(has_others: bool) -> None:
    _, log = filled()
    segment = log.segments.first
    file_range = segment.range_of(0, segment.size_bytes)
    file_range.pin()
    log.truncate_to(3)
    if has_others:
        while log.segments.first.size_bytes < len(file_range):
            append(log, "b" * 100)
    with pytest.raises(RangeLost, match="was truncated below"):
        file_range.read()


def test_a_cut_behind_a_range_does_no_harm() -> None:
    _, log = filled()
    file_range, content = first_of(log)
    log.truncate_to(log.segments.first.base_offset + 20)
    assert file_range.read() == content


def test_a_range_is_lost_if_its_whole_segment_is_truncated() -> None:
    _, log = filled()
    file_range, _ = first_of(log)
    log.truncate_fully_and_start_at(0)
    append(log, "c" * 2000)
    with pytest.raises(RangeLost):
        file_range.read()


def test_files_that_are_held_stay_within_the_limit() -> None:
    files = MemoryFileSystem()
    files.make_directories("/d")
    handles = FileHandles(files, capacity=8)
    held = []
    for number in range(8):
        handles.get(f"/d/{number}", create=True).append([b"x" * number])
        held.append(handles.pin(f"/d/{number}"))
    handles.release_below("/d")
    assert [handles.is_held(file) for file in held] == [True, True] + [False] * 6
    for number in range(8):
        handles.get(f"/d/{number}")
    assert len(handles) == 8
    for file in held:
        handles.drop(file)
    handles.close()
    assert not len(handles)


def test_a_range_of_a_file_that_another_program_has_cut_is_short() -> None:
    storage, log = filled()
    file_range, _ = first_of(log)
    storage.handles.get(log.segments.first.path).truncate(100)
    with pytest.raises(ShortRead):
        file_range.read()
