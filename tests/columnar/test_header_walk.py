"""The walk over batch headers in C does what the one that numba compiles does, on any bytes."""

import mmap
from ctypes import CDLL, addressof, c_char, c_int, c_int64, c_size_t, c_void_p
from random import Random
from typing import Any, Final

import numpy as np
import pytest

from spindle.columnar import header_kernel, header_table, headers, record_walk
from spindle.columnar.corruption import CorruptBatch
from spindle.columnar.decoder import BatchDecoder
from spindle.columnar.record_walk import walk_batch
from spindle.columnar.tables import (
    ADDRESS,
    BASE_OFFSET,
    COUNT,
    DIGEST_WIDTH,
    LAST_DELTA,
    LENGTH,
    OFFSET,
    TABLE_WIDTH,
    WRONG_OFFSETS,
    address_of,
)
from spindle.columnar.unpacked_records import check_records, digest_records
from spindle.common.ids import TopicPartition
from spindle.log.cleaning.native_kernel import load_library
from spindle.protocol.records.batch import HEADER, HEADER_BYTES, BatchHeader
from spindle.protocol.records.builder import SimpleRecord, build_batch, seal_batch

pytestmark = pytest.mark.skipif(load_library() is None, reason="this checkout was not compiled")

WINDOW_AT: Final = 1000
ROOM: Final = 4
MEMORY_BYTES: Final = 1 << 16
NO_ACCESS: Final = 0
NO_DIGESTS: Final = np.zeros((0, DIGEST_WIDTH), np.int64)
TRIALS: Final = 1000


class GuardedMemory:
    """Memory with a page behind it that ends the process when it is read."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, MEMORY_BYTES + mmap.PAGESIZE)
        self._start = addressof(c_char.from_buffer(self._memory))
        protect = CDLL(None).mprotect
        protect.argtypes = [c_void_p, c_size_t, c_int]
        assert protect(self._start + MEMORY_BYTES, mmap.PAGESIZE, NO_ACCESS) == 0

    def hold(self, data: bytes) -> int:
        """Put bytes at its end; return their address."""
        self._memory[MEMORY_BYTES - len(data) : MEMORY_BYTES] = data
        return self._start + MEMORY_BYTES - len(data)


def some_batch(random: Random) -> bytes:
    """Return a batch; most have bytes of their records changed, under a right checksum."""
    records = [
        SimpleRecord(
            random.choice([None, b"", random.randbytes(3)]),
            random.choice([None, b"", random.randbytes(random.choice([20, 3000]))]),
            random.randrange(2**40),
            [("k", random.choice([None, b"", b"v"]))] * random.randrange(3),
        )
        for _ in range(random.randrange(1, 4))
    ]
    batch = build_batch(
        records,
        random.choice([0, 7, 2**40, 2**63 - 4] * 4 + [2**63 - 2, -5]),
        producer_id=random.choice([-1, 5]),
        is_transactional=random.random() < 0.2,
        is_control=random.random() < 0.1,
    )
    header = BatchHeader._make(HEADER.unpack(batch[:HEADER_BYTES]))
    payload = bytearray(batch[HEADER_BYTES:])
    for _ in range(random.choice([0, 1, 1, 2])):
        at = random.randrange(min(40, len(payload)))
        payload[at] = random.choice([0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)])
    if random.random() < 0.1:
        payload[:12] = b"\xff" * random.randrange(8, 12)
    if random.random() < 0.1:
        del payload[random.randrange(len(payload)) :]
    changes: list[dict[str, int]] = [{}, {}, {"record_count": 2}, {"last_offset_delta": 0}]
    changes += [{"attributes": 1}, {"last_offset_delta": 2**31 - 1, "record_count": 2**31 - 1}]
    return seal_batch(header._replace(**random.choice(changes)), payload)


def some_bytes(random: Random) -> bytes:
    """Return batches with damaged headers and a torn end."""
    data = bytearray(b"".join(some_batch(random) for _ in range(random.randrange(1, 7))))
    if random.random() < 0.3:
        at = random.choice([8, 11, 16, 16, 57, random.randrange(HEADER_BYTES)])
        data[at] = random.choice([0, 1, 0x80, 0xFF, random.randrange(256)])
    if random.random() < 0.1:
        data += bytes(100)
    if random.random() < 0.5:
        del data[random.randrange(len(data)) :]
    return bytes(data)


def walked(walk: Any, address: int, size_bytes: int, rest: tuple[Any, ...]) -> list[Any]:
    """Return the tables that a walk fills."""
    left_bytes, limits, checks_crcs, checks_records = rest
    table = np.zeros((header_table.FIELD_COUNT, ROOM), np.int64)
    records = np.zeros((header_table.RECORDS_WIDTH if checks_records else 0, ROOM), np.int64)
    totals = np.zeros(header_table.WALK_WIDTH, np.int64)
    end = WINDOW_AT + size_bytes
    limits = np.array(limits, np.int64)
    tables = table, records, totals
    walk(address - WINDOW_AT, WINDOW_AT, end, end + left_bytes, limits, checks_crcs, *tables)
    if not checks_crcs:
        table[header_table.COMPUTED_CRC] = 0  # without a meaning
    return [table.tolist() for table in tables]


def test_both_walks_fill_the_same_tables_from_damaged_bytes() -> None:
    random, memory = Random(25), GuardedMemory()
    statuses: set[int] = set()
    record_statuses: set[int] = set()
    for trial in range(TRIALS):
        data = some_bytes(random)
        address = memory.hold(data)
        checks_crcs = random.randrange(2)
        rest = (
            random.choice([0, 50, 2**31]),
            random.choice([(-(2**63), 2**63 - 1), (1, 2**40 + 1), (8, 8)]),
            checks_crcs,
            checks_crcs and random.randrange(2),
        )
        expected = walked(header_kernel.walk_headers, address, len(data), rest)
        assert walked(headers.header_walk(), address, len(data), rest) == expected, trial
        statuses.add(expected[2][header_table.WALK_STATUS])
        record_statuses.update(expected[1][0] if expected[1] else [])
    assert statuses == {0, 1, 2, 3, 5, 6}
    assert record_statuses == set(range(-1, 8))


@pytest.mark.parametrize(
    ("base_offset", "last_delta"),
    [(2**63 - 1, 0), (2**63 - 8, 7), (2**63 - 1, 2**31 - 1), (-1, 0), (-(2**63), 0), (5, -1)],
)
def test_offsets_that_no_log_can_have_are_reported_and_not_added(
    base_offset: int, last_delta: int
) -> None:
    """The checksum does not cover the base offset, and a sum that overflows would look early."""
    good = bytearray(build_batch([SimpleRecord(b"key", b"value", 5)], 0))
    header = BatchHeader._make(HEADER.unpack(good[:HEADER_BYTES]))
    changed = header._replace(base_offset=base_offset, last_offset_delta=last_delta)
    data = bytes(good) + seal_batch(changed, good[HEADER_BYTES:])
    memory = GuardedMemory()
    address = memory.hold(data)
    for walk in (headers.header_walk(), header_kernel.walk_headers):
        _, _, totals = walked(walk, address, len(data), (0, (0, 2**63 - 1), 1, 0))
        assert totals[header_table.WALK_STATUS] == WRONG_OFFSETS
        assert (totals[header_table.WALK_BATCHES], totals[header_table.WALK_NEXT_OFFSET]) == (1, 1)
        assert not totals[header_table.WALK_FINISHED]
    decoder = BatchDecoder(TopicPartition("t", 0))
    rows = decoder.decode(data)
    assert next(rows).num_rows == 1
    with pytest.raises(CorruptBatch, match="offsets are not a range"):
        next(rows)
    assert (decoder.next_offset, decoder.is_finished) == (1, False)


def test_both_walks_read_no_byte_behind_a_torn_batch() -> None:
    memory = GuardedMemory()
    data = build_batch([SimpleRecord(b"key", b"value" * 500, 5, [("k", b"v")])] * 2)
    for size in range(len(data) + 1):
        address = memory.hold(data[:size])
        for checks in (0, 1):
            rest = (len(data) - size, (0, 10), checks, checks)
            expected = walked(header_kernel.walk_headers, address, size, rest)
            assert walked(headers.header_walk(), address, size, rest) == expected


def test_both_checks_of_unpacked_records_say_the_same() -> None:
    random, memory, library = Random(25), GuardedMemory(), load_library()
    assert library is not None
    for trial in range(TRIALS):
        data = some_batch(random)[HEADER_BYTES:]
        data = data[: random.randrange(len(data) + 1)] if random.random() < 0.5 else data
        address = memory.hold(data)
        count, last_delta = random.choice([0, 1, 3, 2**31 - 1]), random.choice([0, 2, 2**31 - 1])
        status, at, _ = walk_batch(
            address, address + len(data), count, 0, last_delta, NO_DIGESTS, 0
        )
        byte = c_int64()
        finding = library.spindle_check_records(
            address, len(data), count, last_delta, addressof(byte)
        )
        assert (finding, byte.value) == (status, at), trial
        assert check_records(data, count, last_delta) == (status, at), trial


def batch_row(address: int, data: bytes) -> list[int]:
    header = BatchHeader._make(HEADER.unpack(data[:HEADER_BYTES]))
    length = len(data) - HEADER_BYTES
    row = [0] * TABLE_WIDTH
    row[ADDRESS], row[LENGTH] = address + HEADER_BYTES, length
    row[BASE_OFFSET], row[LAST_DELTA] = header.base_offset, header.last_offset_delta
    row[COUNT] = min(header.record_count, length // 7)
    return row


def test_both_walks_make_the_same_digests_of_sound_batches_and_none_of_others() -> None:
    random, digests_made = Random(25), set()
    for trial in range(TRIALS):
        memory = [bytearray(some_batch(random)) for _ in range(random.randrange(1, 5))]
        table = np.array([batch_row(address_of(data), bytes(data)) for data in memory], np.int64)
        rows = np.zeros((int(table[:, COUNT].sum()), DIGEST_WIDTH), np.int64)
        made = record_walk.digest_records(table, rows)
        assert digest_records(table).tolist() == rows[:made].tolist(), trial
        digests_made.add(made)
    assert {0, 1, 2, 3} <= digests_made


def test_a_batch_that_contradicts_itself_hides_no_digests_of_its_neighbours() -> None:
    sound = [
        build_batch([SimpleRecord(key, b"value", 5)], at) for at, key in enumerate((b"a", b"b"))
    ]
    broken = bytearray(sound[0])
    broken[HEADER_BYTES] = 0x7F
    memory = [bytearray(sound[0]), broken, bytearray(sound[1])]
    table = np.array([batch_row(address_of(data), bytes(data)) for data in memory], np.int64)
    assert digest_records(table)[:, OFFSET].tolist() == [0, 1]
