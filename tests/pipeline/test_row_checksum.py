"""Row hashes against a simple XXH64, and the differences that a checksum must notice."""

import datetime

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from row_checksum import NO_ROWS, RowChecksum, checksum_of_batches
from row_hashing import SEED, row_hashes

MASK = 2**64 - 1
P1, P2, P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
P4, P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def rotated(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & MASK


def mixed(lane: int, word: int) -> int:
    return rotated((lane + word * P2) & MASK, 31) * P1 & MASK


def xxh64(data: bytes, seed: int) -> int:
    position = 0
    if len(data) >= 32:
        lanes = [(seed + P1 + P2) & MASK, (seed + P2) & MASK, seed, (seed - P1) & MASK]
        while len(data) - position >= 32:
            for index in range(4):
                word = int.from_bytes(data[position : position + 8], "little")
                lanes[index] = mixed(lanes[index], word)
                position += 8
        state = sum(map(rotated, lanes, (1, 7, 12, 18))) & MASK
        for lane in lanes:
            state = ((state ^ mixed(0, lane)) * P1 + P4) & MASK
    else:
        state = (seed + P5) & MASK
    state = (state + len(data)) & MASK
    while len(data) - position >= 8:
        state ^= mixed(0, int.from_bytes(data[position : position + 8], "little"))
        state = (rotated(state, 27) * P1 + P4) & MASK
        position += 8
    if len(data) - position >= 4:
        state ^= int.from_bytes(data[position : position + 4], "little") * P1 & MASK
        state = (rotated(state, 23) * P2 + P3) & MASK
        position += 4
    for byte in data[position:]:
        state = rotated(state ^ byte * P5 & MASK, 11) * P1 & MASK
    state = (state ^ state >> 33) * P2 & MASK
    state = (state ^ state >> 29) * P3 & MASK
    return state ^ state >> 32


def test_the_plain_twin_is_xxh64() -> None:
    assert xxh64(b"", 0) == 0xEF46DB3751D8E999
    assert xxh64(b"abc", 0) == 0x44BC2CF5AD770999


@settings(deadline=None)
@given(st.lists(st.none() | st.binary(max_size=100), min_size=1, max_size=20), st.integers(0, 5))
def test_bytes_are_hashed_with_xxh64(values: list[bytes | None], skip: int) -> None:
    column = pa.array(values, pa.binary()).slice(skip)
    expected = [SEED if value is None else xxh64(value, SEED) for value in values[skip:]]
    assert row_hashes([column]).tolist() == expected


@settings(deadline=None)
@given(st.lists(st.none() | st.integers(-(2**40), 2**50), min_size=1, max_size=20))
def test_times_are_hashed_with_xxh64(values: list[int | None]) -> None:
    column = pa.array(values, pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    expected = [
        SEED if value is None else xxh64(value.to_bytes(8, "little", signed=True), SEED)
        for value in values
    ]
    assert row_hashes([column]).tolist() == expected


def test_columns_chain_and_other_types_are_refused() -> None:
    key, value = pa.array([b"k"]), pa.array([b"v"])
    assert row_hashes([key, value]).tolist() == [xxh64(b"v", xxh64(b"k", SEED))]
    with pytest.raises(TypeError, match="int64"):
        row_hashes([pa.array([1])])


def batch(rows: list[tuple[bytes | None, bytes | None, int]]) -> pa.RecordBatch:
    moments = [
        datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(milliseconds=row[2])
        for row in rows
    ]
    return pa.record_batch(
        {
            "key": pa.array([row[0] for row in rows], pa.binary()),
            "value": pa.array([row[1] for row in rows], pa.binary()),
            "timestamp": pa.array(moments, pa.timestamp("us", tz="UTC")),
        }
    )


ROWS: list[tuple[bytes | None, bytes | None, int]] = [
    (b"a", b"1", 0),
    (None, b"2", 1),
    (b"b", None, 2),
]


def test_order_and_batches_do_not_matter() -> None:
    whole = checksum_of_batches([batch(ROWS)])
    parts = checksum_of_batches([batch([row]) for row in reversed(ROWS)])
    assert whole == parts
    assert whole.rows == 3


@pytest.mark.parametrize(
    "changed",
    [ROWS[:2], [*ROWS, ROWS[0]], [(b"a", b"1", 1), *ROWS[1:]], [(None, b"1", 0), *ROWS[1:]]],
)
def test_every_change_is_noticed(changed: list[tuple[bytes | None, bytes | None, int]]) -> None:
    assert checksum_of_batches([batch(changed)]) != checksum_of_batches([batch(ROWS)])


def test_nothing_and_its_text() -> None:
    assert checksum_of_batches([]) == NO_ROWS
    assert str(RowChecksum(2, 255)) == "00000000000000ff over 2 rows"
