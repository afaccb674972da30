"""Finding where large records are in a file, without reading them."""

from hypothesis import given, settings
from hypothesis import strategies as st
from log_builders import NOW_MS, ROOT, append, new_log, new_storage

from spindle.log.locating import locate
from spindle.log.log import Log
from spindle.log.log_config import LogConfig
from spindle.log.storage import LogStorage
from spindle.protocol.records.batch import batches

CONFIG = LogConfig(segment_bytes=4000, segment_index_bytes=2400, index_interval_bytes=100)
BATCHES = 60


def filled(storage: LogStorage | None = None, first: int = 0, count: int = BATCHES) -> Log:
    """Batches of three records, of a few sizes."""
    log = new_log(CONFIG, storage)
    add(log, first, count)
    return log


def add(log: Log, first: int, count: int) -> None:
    for number in range(first, first + count):
        append(log, "a" * (number % 7) * 10, "b", f"{number}", at_ms=NOW_MS + number)


def check(log: Log, offset: int, max_bytes: int, end_offset: int, least_bytes: int) -> int:
    """Compare what is located with what is read; return its bytes."""
    file_range = locate(log, offset, max_bytes, end_offset, least_bytes)
    if file_range is None:
        return 0
    assert least_bytes <= len(file_range) <= max_bytes
    records = bytes(file_range.read())
    expected = bytes(log.read(offset, max_bytes, end_offset).records)
    assert expected.startswith(records)
    headers = [header for _, header in batches(records)]
    assert sum(header.size_bytes for header in headers) == len(records)
    return len(records)


LOG = filled()


@given(
    st.integers(0, 3 * BATCHES),
    st.integers(1, 5000),
    st.integers(0, 3 * BATCHES),
    st.integers(1, 1000),
)
def test_a_located_range_is_a_prefix_of_the_read(
    offset: int, max_bytes: int, end_offset: int, least_bytes: int
) -> None:
    check(LOG, offset, max_bytes, end_offset, least_bytes)


def test_a_reader_that_locates_gets_nearly_all_from_files() -> None:
    log = filled()
    offset = located = 0
    while offset < log.log_end_offset:
        file_range = locate(log, offset, 1500, log.log_end_offset, 300)
        records = (
            file_range.read() if file_range else log.read(offset, 1500, log.log_end_offset).records
        )
        located += len(file_range) if file_range else 0
        (first, *_), last = (header for _, header in batches(records)), None
        assert first.base_offset == offset
        for _, last in batches(records):
            offset = last.next_offset
        assert last is not None
    assert located > 0.8 * log.size_bytes


def test_nothing_at_or_above_the_end_is_located() -> None:
    log = filled()
    for end_offset in range(0, log.log_end_offset, 3):
        file_range = locate(log, 0, 10**6, end_offset, 1)
        last = list(batches(file_range.read()))[-1][1] if file_range else None
        assert last is None or last.last_offset < end_offset


def test_too_little_is_not_located() -> None:
    log = filled()
    assert locate(log, 0, 10**6, log.log_end_offset, 100) is not None
    assert locate(log, 0, 10**6, log.log_end_offset, 4001) is None
    assert locate(log, log.log_end_offset, 10**6, log.log_end_offset, 1) is None
    assert locate(log, log.log_end_offset + 1, 10**6, log.log_end_offset, 1) is None


@settings(max_examples=25)
@given(st.integers(1, 3 * BATCHES), st.integers(0, 3 * BATCHES), st.integers(100, 3000))
def test_after_a_truncation_the_new_records_are_located(
    end: int, offset: int, max_bytes: int
) -> None:
    log = filled()
    before = locate(log, 0, 1500, log.log_end_offset, 1)
    assert before is not None
    log.truncate_to(end)
    add(log, 1000, 20)
    check(log, offset, max_bytes, log.log_end_offset, 1)
    check(log, log.log_end_offset - 30, max_bytes, log.log_end_offset, 1)


def test_a_damaged_index_is_not_believed() -> None:
    storage = new_storage()
    log = filled(storage)
    index = log.segments.first.offset_index.file
    file = storage.handles.get(index.path)
    for entry in range(index.count):
        relative_offset, position = index.entry_at(entry)
        file.pwrite((relative_offset).to_bytes(4) + (position + 3).to_bytes(4), entry * 8)
    assert log.segments.first.path.startswith(ROOT)
    for max_bytes in range(100, 3500, 50):
        assert locate(log, 0, max_bytes, log.log_end_offset, 1) is None


def test_a_deleted_log_locates_nothing() -> None:
    log = filled()
    log.mark_deleted("orders-0.x-delete")
    assert locate(log, 0, 1000, log.log_end_offset, 1) is None
