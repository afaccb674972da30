"""The three indexes of a segment and the cache of open files."""

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_builders import append, new_log, new_storage

from spindle.common.errors import CorruptLog
from spindle.log.formats.transaction_index import AbortedTransaction
from spindle.log.open_files import FileHandles
from spindle.log.segments.offset_index import OffsetIndex
from spindle.log.segments.time_index import TimeIndex
from spindle.log.segments.transaction_index import TransactionIndex
from spindle.testing.filesystem import Fault, MemoryFileSystem

KIB = 1024


def handles() -> FileHandles:
    files = MemoryFileSystem()
    files.make_directories("/log")
    return FileHandles(files)


@given(
    st.lists(st.integers(1, 50), min_size=1, max_size=1500),
    st.lists(st.integers(-5, 80_000), min_size=1, max_size=20),
)
def test_offset_lookups_agree_with_a_list(steps: list[int], asked: list[int]) -> None:
    index = OffsetIndex(handles(), "/log", 1000, 64 * KIB, "")
    index.create()
    entries: list[tuple[int, int]] = []
    offset = 1000
    for number, step in enumerate(steps):
        offset += step
        entries.append((offset, number * 7))
        index.append(offset, number * 7)
    for wanted in [1000 + number for number in asked] + [offset, offset + 1, entries[0][0]]:
        floor = [position for at, position in entries if at <= wanted]
        assert index.lookup(wanted) == (floor[-1] if floor else 0)


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=800), st.lists(st.integers(-1, 1001)))
def test_time_lookups_agree_with_a_list(times: list[int], asked: list[int]) -> None:
    index = TimeIndex(handles(), "/log", 50, 64 * KIB, "")
    index.create()
    kept: list[tuple[int, int]] = []
    for number, at in enumerate(times):
        index.append_if_later(at, 50 + number)
        if not kept or at > kept[-1][0]:
            kept.append((at, 50 + number))
    for wanted in asked:
        floor = [offset for at, offset in kept if at <= wanted]
        assert index.lookup(wanted) == (floor[-1] if floor else 50)
    assert index.last == kept[-1]


def test_the_bytes_of_entries() -> None:
    shared = handles()
    offsets = OffsetIndex(shared, "/log", 100, 17, "")
    offsets.create()
    offsets.append(105, 4242)
    times = TimeIndex(shared, "/log", 100, 25, "")
    times.create()
    times.append_if_later(1_700_000_000_000, 105)
    read = shared.file_system.read_bytes
    assert read(f"/log/{100:020d}.index").hex() == "00000005" + "00001092" + 8 * "00"
    assert read(f"/log/{100:020d}.timeindex").hex() == (
        "0000018bcfe56800" + "00000005" + 12 * "00"
    ), "full size is a whole number of entries"


@pytest.mark.parametrize("offset", range(99, 140))
def test_truncation_keeps_what_lies_before(offset: int) -> None:
    shared = handles()
    offsets = OffsetIndex(shared, "/log", 100, KIB, "")
    times = TimeIndex(shared, "/log", 100, KIB, "")
    offsets.create()
    times.create()
    for number in range(1, 13):
        offsets.append(100 + 3 * number, number)
        times.append_if_later(1000 + number, 100 + 3 * number)
    offsets.truncate_to(offset)
    times.truncate_to(offset)
    kept = [number for number in range(1, 13) if 100 + 3 * number < offset]
    assert offsets.file.count == times.file.count == len(kept)
    last = kept[-1] if kept else 0
    assert offsets.last == (100 + 3 * last, last)
    assert times.last == (1000 + last if last else -1, 100 + 3 * last)


def test_an_index_is_full_at_its_size_limit() -> None:
    shared = handles()
    offsets = OffsetIndex(shared, "/log", 0, 24, "")
    times = TimeIndex(shared, "/log", 0, 36, "")
    for number in range(1, 4):
        assert not offsets.is_full
        offsets.append(number, number)
    assert offsets.is_full
    for number in range(1, 3):
        assert not times.is_full
        times.append_if_later(number, number)
    assert times.is_full, "one place is kept for the end of the segment"
    times.append_if_later(3, 3)
    assert times.file.count == 3


class TestTransactionIndex:
    def index(self) -> tuple[MemoryFileSystem, TransactionIndex]:
        files = MemoryFileSystem()
        files.make_directories("/log")
        return files, TransactionIndex(FileHandles(files), "/log", 7, "")

    def test_there_is_no_file_without_entries(self) -> None:
        files, index = self.index()
        assert (index.entries(), index.is_empty, files.list_directory("/log")) == ([], True, [])

    def test_the_bytes_of_entries(self) -> None:
        files, index = self.index()
        index.append(AbortedTransaction(1, 2, 3, 4))
        content = files.read_bytes(f"/log/{7:020d}.txnindex")
        assert content.hex() == "0000" + "".join(f"{number:016x}" for number in (1, 2, 3, 4))

    def test_a_transaction_index_can_be_truncated_and_loaded(self) -> None:
        files, index = self.index()
        transactions = [AbortedTransaction(n, 10 * n, 10 * n + 5, 10 * n + 6) for n in range(4)]
        for transaction in transactions:
            index.append(transaction)
        index.truncate_to(25)
        assert index.entries() == transactions[:2]
        again = TransactionIndex(FileHandles(files), "/log", 7, "")
        assert again.open(files.size(again.path))
        assert again.entries() == transactions[:2]
        assert not again.open(33)
        again.reset()
        assert files.list_directory("/log") == []

    def test_another_version_is_refused(self) -> None:
        files, index = self.index()
        index.append(AbortedTransaction(1, 2, 3, 4))
        files.open(index.path).pwrite(b"\0\1", 0)
        with pytest.raises(CorruptLog, match="version 1, expected 0"):
            index.entries()


class TestHandles:
    def test_the_least_recently_used_file_is_closed(self) -> None:
        files = MemoryFileSystem()
        cache = FileHandles(files, 2)
        a = cache.get("/a", create=True)
        cache.get("/b", create=True)
        assert cache.get("/a") is a
        cache.get("/c", create=True)
        assert cache.get("/a") is a
        assert len(cache) == 2
        before = len(files.operations)
        cache.get("/b")
        assert files.operations[before:] == [("open", "/b")]

    def test_releasing_a_directory_closes_only_its_files(self) -> None:
        files = MemoryFileSystem()
        files.make_directories("/d")
        cache = FileHandles(files)
        inside, outside = cache.get("/d/x", create=True), cache.get("/dx", create=True)
        cache.release_below("/d")
        with pytest.raises(OSError, match="closed"):
            inside.size()
        outside.size()
        cache.release("/dx")
        cache.release("/dx")
        assert len(cache) == 0

    def test_no_room_is_a_mistake(self) -> None:
        with pytest.raises(ValueError, match="capacity is 0"):
            FileHandles(MemoryFileSystem(), 0)


@pytest.mark.parametrize("error_number", [errno.EIO, errno.ENOSPC, errno.EROFS])
@pytest.mark.parametrize("operation", ["pwrite", "open", "write_atomically", "sync"])
def test_a_disk_error_goes_up_as_it_is(operation: str, error_number: int) -> None:
    files = MemoryFileSystem()
    log = new_log(storage=new_storage(files))
    log._storage.handles.close()
    files.faults.append(Fault("orders-0", operation, error_number))

    def append_and_flush() -> None:
        append(log, "a")
        log.flush()

    with pytest.raises(OSError, match="injected") as caught:
        append_and_flush()
    assert caught.value.errno == error_number
