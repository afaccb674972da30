"""The native loops of compaction do what the Python code does, or leave the batch to it."""

import os
from random import Random
from struct import pack_into
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from log_builders import NOW_MS, new_log, new_storage

from spindle.common.errors import CorruptLog
from spindle.common.native import is_native_available
from spindle.log.cleaning import cleaning
from spindle.log.cleaning.cleaning import Cleaning, CleaningSettings
from spindle.log.cleaning.key_map import BatchCopier, CopyRules, DictKeyMap, KeyMap, MapSize
from spindle.log.cleaning.plan import dirty_range, plan_cleaning
from spindle.log.cleaning.replacement import put_in_place
from spindle.log.errors import UncleanableLog
from spindle.log.log import Log
from spindle.log.log_config import LogConfig
from spindle.log.segments.segment import IndexProgress
from spindle.protocol.records.batch import HEADER_BYTES, read_header
from spindle.protocol.records.builder import SimpleRecord, build_batch, seal_batch
from spindle.testing.filesystem import MemoryFileSystem

TRIALS: Final = int(os.environ.get("CLEANING_TRIALS", "150"))
FORMER_FAILURES: Final = (1742, 2393)
SIZE = MapSize(1 << 20, 0.9, 1000)
CONFIG = LogConfig(
    segment_bytes=2000,
    segment_index_bytes=240,
    index_interval_bytes=300,
    cleanup_policy=("compact",),
    delete_retention_ms=1000,
)

native_code = pytest.mark.skipif(not is_native_available(), reason="there is no native code")


def native(size: MapSize = SIZE) -> KeyMap:
    from spindle.log.cleaning.native_key_map import NativeKeyMap

    return NativeKeyMap(size)


@pytest.mark.parametrize("is_native", [False, True])
def test_the_map_is_native_where_that_is_wanted_and_available(is_native: bool) -> None:
    keys = cleaning.new_key_map(SIZE, is_native=is_native)
    assert isinstance(keys, DictKeyMap) == (not is_native or not is_native_available())


@native_code
@given(st.lists(st.tuples(st.binary(max_size=40), st.integers(0, 2**40)), max_size=60))
def test_the_map_is_a_dict(pairs: list[tuple[bytes, int]]) -> None:
    table, expected = native(), dict[bytes, int]()
    for key, offset in pairs:
        assert table.put(key, offset)
        expected[key] = offset
    assert {key: table.newest_offset(key) for key in expected} == expected
    assert table.newest_offset(b"x" * 50) == -1


@native_code
@pytest.mark.parametrize("size", [1, 3000, 3071, 3072, 6143, 6145, 100_003])
def test_a_checksum_of_any_length_is_right(size: int) -> None:
    value = (bytes(range(251)) * 400)[:size]
    batch = build_batch([SimpleRecord(b"k", value, NOW_MS)])
    assert native().put_batches(batch, 0, 0, 10) == (len(batch), 1)
    damaged = bytearray(batch)
    damaged[-1] ^= 1
    assert native().put_batches(bytes(damaged), 0, 0, 10) == (0, -1)


@native_code
def test_the_map_keeps_to_its_memory() -> None:
    table = native(MapSize(24 * 100, 0.5, 10**6))
    put = 0
    while table.put(b"%d" % put, put):
        put += 1
        assert table.is_full == (put >= 50)
    assert put == 99
    assert all(table.newest_offset(b"%d" % key) == key for key in range(put))
    assert native(MapSize(24 * 10**9, 0.9, 5)).use == 0.0, "it is no larger than it has to be"


times = st.integers(-(2**62), 2**62) | st.integers(NOW_MS - 10, NOW_MS + 10_000)
records = st.lists(
    st.builds(
        SimpleRecord,
        st.none() | st.sampled_from([b"", b"a", b"b", b"c" * 9, b"d" * 200]),
        st.none() | st.binary(max_size=200),
        times,
        st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2),
    ),
    min_size=1,
    max_size=6,
)


def produce_all(log: Log, produced: list[tuple[list[SimpleRecord], int, bool, int]]) -> None:
    for some, codec, has_append_time, producer_id in produced:
        log.append_as_leader(
            build_batch(
                some,
                codec=codec,
                log_append_time_ms=NOW_MS if has_append_time else None,
                producer_id=producer_id,
                producer_epoch=min(producer_id, 0),
            ),
            0,
            NOW_MS,
            validated=True,
        )


def files_after(
    produced: list[tuple[list[SimpleRecord], int, bool, int]], buffer_bytes: int, *, is_native: bool
) -> dict[str, bytes]:
    """Two passes, the second after the delete horizon; the bytes of all files."""
    files = MemoryFileSystem()
    log = new_log(CONFIG, new_storage(files))
    produce_all(log, produced)
    cleaner_offset = None
    patch = pytest.MonkeyPatch()
    patch.setattr(cleaning, "_MIN_READ_BYTES", 1)
    with patch.context():
        for now_ms in (NOW_MS, NOW_MS + 1001):
            log.roll(NOW_MS)
            produce_all(log, produced[:1])
            log.update_high_watermark(log.log_end_offset)
            plan = plan_cleaning(log, dirty_range(log, cleaner_offset, now_ms))
            settings = CleaningSettings(buffer_bytes=buffer_bytes, is_native=is_native)
            cleaned = Cleaning(files, plan, now_ms, settings).run()
            assert put_in_place(cleaned, now_ms)
            cleaner_offset = cleaned.end_offset
    patch.undo()
    names = [n for n in files.list_directory(log.path) if not n.endswith(".deleted")]
    return {name: files.read_bytes(f"{log.path}/{name}") for name in names}


@native_code
@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(records, st.sampled_from([0, 0, 0, 1, 4]), st.booleans(), st.just(-1)),
        min_size=1,
        max_size=12,
    ),
    st.sampled_from([4, 1000, 1 << 20]),
)
def test_every_byte_is_the_same_with_and_without_native_code(
    produced: list[tuple[list[SimpleRecord], int, bool, int]], buffer_bytes: int
) -> None:
    expected = files_after(produced, buffer_bytes, is_native=False)
    assert files_after(produced, buffer_bytes, is_native=True) == expected


def hostile_batch(random: Random) -> bytes:
    """Return a batch whose records or header a client, or a disk, has made strange."""
    keys = random.choices([None, b"", b"a", b"b", b"c" * 70], k=random.randrange(1, 5))
    batch = build_batch(
        [SimpleRecord(key, random.choice([None, b"v" * 70]), NOW_MS) for key in keys],
        codec=random.choice([0, 0, 0, 4]),
    )
    header, payload = read_header(batch), bytearray(batch[HEADER_BYTES:])
    for _ in range(random.choice([0, 0, 1, 2])):
        at = random.randrange(min(30, len(payload)))
        payload[at] = random.choice([0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)])
    if random.random() < 0.1:
        payload += bytes(random.randrange(1, 4))
    changes: list[dict[str, int]] = [{}] * 6
    changes += [{"record_count": count} for count in (-(2**31), -1, 0, 1, 2, 2**31 - 1)]
    changes += [{"base_timestamp": time} for time in (-(2**63), -1, NOW_MS - 5000, 2**63 - 1)]
    changes += [{"max_timestamp": time} for time in (-(2**63), -1, 2**63 - 1)]
    changes += [{"attributes": flags} for flags in (1, 4, 5, 7, 8, 0x40, 0x48)]
    changes += [{"last_offset_delta": delta} for delta in (0, 1000)]
    return seal_batch(header._replace(**random.choice(changes)), payload)


def outcome(seed: int, *, is_native: bool) -> object:
    """Compact a log with hostile batches; return the bytes of its files, or the error."""
    random = Random(seed)
    files = MemoryFileSystem()
    log = new_log(CONFIG, new_storage(files))
    for _ in range(random.randrange(1, 10)):
        log.append_as_leader(hostile_batch(random), 0, NOW_MS, validated=True)
    log.roll(NOW_MS)
    log.append_as_leader(built(), 0, NOW_MS, validated=True)
    log.update_high_watermark(log.log_end_offset)
    if random.random() < 0.1:
        name = min(n for n in files.list_directory(log.path) if n.endswith(".log"))
        at = random.randrange(len(files.read_bytes(f"{log.path}/{name}")))
        files.open(f"{log.path}/{name}").pwrite(bytes([random.randrange(256)]), at)
    settings = CleaningSettings(buffer_bytes=random.choice([4, 1000, 1 << 20]), is_native=is_native)
    try:
        plan = plan_cleaning(log, dirty_range(log, None, NOW_MS))
        cleaned = Cleaning(files, plan, NOW_MS, settings).run()
        assert put_in_place(cleaned, NOW_MS)
    except (CorruptLog, UncleanableLog) as error:
        return type(error), str(error)
    names = [n for n in files.list_directory(log.path) if not n.endswith(".deleted")]
    return {name: files.read_bytes(f"{log.path}/{name}") for name in names}


@native_code
def test_hostile_batches_end_the_same_with_and_without_native_code() -> None:
    kinds = set()
    for seed in (*range(TRIALS), *FORMER_FAILURES):
        expected = outcome(seed, is_native=False)
        assert outcome(seed, is_native=True) == expected, seed
        kinds.add(expected[0] if isinstance(expected, tuple) else dict)
    assert {dict, UncleanableLog} <= kinds


def rules(end: int) -> CopyRules:
    return CopyRules(end, end, NOW_MS, NOW_MS + 1000, [], 4096)


def copier(table: KeyMap, rules: CopyRules) -> BatchCopier:
    copier = table.copier(rules, 1 << 16)
    assert copier is not None
    return copier


def built(count: int = 3, **fields: Any) -> bytes:
    some = [SimpleRecord(b"k%d" % n, b"v", NOW_MS) for n in range(count)]
    return build_batch(some, **fields)


@native_code
@pytest.mark.parametrize(
    "batch",
    [
        built(codec=4),
        built(is_transactional=True, producer_id=1, producer_epoch=0),
        built(is_control=True),
        built()[:-3],
        built()[:60],
        b"\1" + built()[1:17] + b"\0\0\0\0" + built()[21:],
        built()[:16] + b"\1" + built()[17:],
        seal_batch(read_header(built()), built()[HEADER_BYTES:] + b"\0"),
        seal_batch(read_header(built()), built()[HEADER_BYTES:-1]),
        seal_batch(read_header(built())._replace(record_count=2**31 - 1), built()[HEADER_BYTES:]),
        seal_batch(read_header(built())._replace(record_count=-1), built()[HEADER_BYTES:]),
        seal_batch(read_header(built())._replace(last_offset_delta=-1), built()[HEADER_BYTES:]),
        seal_batch(read_header(built())._replace(base_offset=2**63 - 2), built()[HEADER_BYTES:]),
        seal_batch(read_header(built())._replace(base_offset=-(2**63)), built()[HEADER_BYTES:]),
    ],
    ids=[
        "compressed",
        "transactional",
        "control",
        "cut",
        "header cut",
        "checksum",
        "magic",
        "longer",
        "shorter",
        "many records",
        "negative count",
        "negative delta",
        "overflowing offset",
        "negative offset",
    ],
)
def test_it_gives_up_in_front_of_what_it_cannot_handle(batch: bytes) -> None:
    table = native()
    before = built()
    data = before + batch + built()
    position, end = table.put_batches(data, 0, 0, 100)
    assert (position, end) == (len(before), 3)
    copied = copier(table, rules(3)).copy(data, 0, IndexProgress(-1, 0, 0))
    assert copied.next_position == len(before)
    assert bytes(copied.data) == before


@native_code
@given(st.binary(max_size=80), st.integers(0, 10))
def test_arbitrary_bytes_are_no_records(payload: bytes, count: int) -> None:
    header = read_header(built())._replace(record_count=count)
    table = native()
    parsed = table.put_records(header, payload, 0)
    assert (table.filter_records(header, payload, rules(0)) is not None) == parsed


@native_code
@given(st.lists(st.tuples(st.integers(61, 300), st.integers(0, 255)), max_size=8))
def test_damaged_records_never_lead_out_of_the_buffer(damages: list[tuple[int, int]]) -> None:
    batch = bytearray(built(20))
    for position, byte in damages:
        batch[min(position, len(batch) - 1)] = byte
    sealed = seal_batch(read_header(batch), batch[HEADER_BYTES:])
    table = native()
    position, _ = table.put_batches(sealed, 0, 0, 100)
    copied = copier(table, rules(20)).copy(sealed, 0, IndexProgress(-1, 0, 0))
    assert (copied.next_position == len(sealed)) >= (position == len(sealed))


def test_a_batch_with_more_keys_than_memory_is_named() -> None:
    log = new_log(LogConfig(cleanup_policy=("compact",)))
    log.append_as_leader(built(1000), 0, NOW_MS)
    log.roll(NOW_MS)
    log.append_as_leader(built(1), 0, NOW_MS)
    log.update_high_watermark(log.log_end_offset)
    plan = plan_cleaning(log, dirty_range(log, None, NOW_MS))
    pass_ = Cleaning(log.handles.file_system, plan, NOW_MS, CleaningSettings(map_bytes=2400))
    if not is_native_available():
        assert pass_.run().end_offset == 1000, "a dict has room for one batch more"
        return
    with pytest.raises(UncleanableLog, match=r"log\.cleaner\.dedupe\.buffer\.size has no room"):
        pass_.run()


@pytest.mark.parametrize("is_native", [False, True], ids=["python", "native"])
def test_a_batch_with_more_records_than_offsets_is_named(is_native: bool) -> None:
    """The native key map has room for a key per offset, the dict has no limit."""
    log = new_log(LogConfig(cleanup_policy=("compact",)))
    header = read_header(built(4))._replace(last_offset_delta=0)
    log.append_as_leader(seal_batch(header, built(4)[HEADER_BYTES:]), 0, NOW_MS, validated=True)
    log.roll(NOW_MS)
    log.append_as_leader(built(1), 0, NOW_MS)
    log.update_high_watermark(log.log_end_offset)
    plan = plan_cleaning(log, dirty_range(log, None, NOW_MS))
    settings = CleaningSettings(is_native=is_native)
    with pytest.raises(UncleanableLog, match="4 records, but 1 offsets"):
        Cleaning(log.handles.file_system, plan, NOW_MS, settings).run()


def test_pack_into_keeps_the_position_of_the_count() -> None:
    """The native code reads the count of records at byte 57 of a batch, and flags at byte 22."""
    batch = bytearray(built(5))
    pack_into(">i", batch, 57, 4)
    assert read_header(batch).record_count == 4
    batch[22] = 0x40
    assert read_header(batch).delete_horizon_ms is not None
