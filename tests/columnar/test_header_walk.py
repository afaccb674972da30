"""The native walks over batches do what the ones in Python do, on any bytes."""

import mmap
from ctypes import CDLL, addressof, c_char, c_int, c_size_t, c_void_p
from random import Random
from typing import Any, Final

import numpy as np
import pytest

from spindle.columnar import header_table, headers, record_walk, unpacked_records
from spindle.columnar.corruption import CorruptBatch
from spindle.columnar.decoder import BatchDecoder
from spindle.columnar.header_walk import WalkedHeaders, walk_headers
from spindle.columnar.tables import OFFSET, WRONG_OFFSETS
from spindle.columnar.unpacked_records import RecordsPlace, check_records, digest_records
from spindle.common.ids import TopicPartition
from spindle.common.native import is_native_available
from spindle.protocol.records.batch import HEADER, HEADER_BYTES, BatchHeader
from spindle.protocol.records.builder import SimpleRecord, build_batch, seal_batch

pytestmark = pytest.mark.skipif(not is_native_available(), reason="there is no native code")

WINDOW_AT: Final = 1000
ROOM: Final = 4
MEMORY_BYTES: Final = 1 << 16
NO_ACCESS: Final = 0
TRIALS: Final = 1000


class GuardedMemory:
    """Memory with a page behind it that ends the process when it is read."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, MEMORY_BYTES + mmap.PAGESIZE)
        self._start = addressof(c_char.from_buffer(self._memory))
        protect = CDLL(None).mprotect
        protect.argtypes = [c_void_p, c_size_t, c_int]
        assert protect(self._start + MEMORY_BYTES, mmap.PAGESIZE, NO_ACCESS) == 0

    def hold(self, data: bytes) -> memoryview:
        """Put bytes at its end; return them."""
        self._memory[MEMORY_BYTES - len(data) : MEMORY_BYTES] = data
        return memoryview(self._memory)[MEMORY_BYTES - len(data) : MEMORY_BYTES]


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


def walked(walk: Any, data: memoryview, rest: tuple[Any, ...]) -> tuple[WalkedHeaders, Any, Any]:
    """Return the end of a walk, and the tables that it fills."""
    left_bytes, limits, checks_crcs, checks_records = rest
    table = np.zeros((header_table.FIELD_COUNT, ROOM), np.int64)
    records = np.zeros((header_table.RECORDS_WIDTH if checks_records else 0, ROOM), np.int64)
    file_end = WINDOW_AT + len(data) + left_bytes
    ended = walk(data, WINDOW_AT, file_end, limits, 0, checks_crcs, table, records)
    return WalkedHeaders._make(ended), table.tolist(), records.tolist()


def test_both_walks_fill_the_same_tables_from_damaged_bytes() -> None:
    random, memory = Random(25), GuardedMemory()
    findings: set[int] = set()
    record_statuses: set[int] = set()
    for trial in range(TRIALS):
        data = memory.hold(some_bytes(random))
        checks_crcs = bool(random.randrange(2))
        rest = (
            random.choice([0, 50, 2**31]),
            random.choice([(-(2**63), 2**63 - 1), (1, 2**40 + 1), (8, 8)]),
            checks_crcs,
            checks_crcs and bool(random.randrange(2)),
        )
        expected = walked(walk_headers, data, rest)
        assert walked(headers.walk_function(), data, rest) == expected, trial
        ended, _, records = expected
        findings.add(ended.finding)
        record_statuses.update(records[0] if records else [])
    assert findings == {0, 1, 2, 3, 5, 6}
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
    window = GuardedMemory().hold(data)
    for walk in (headers.walk_function(), walk_headers):
        ended, _, _ = walked(walk, window, (0, (0, 2**63 - 1), True, False))
        assert ended == (WRONG_OFFSETS, WINDOW_AT + len(good), 1, 1, False, False)
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
        window = memory.hold(data[:size])
        for checks in (False, True):
            rest = (len(data) - size, (0, 10), checks, checks)
            expected = walked(walk_headers, window, rest)
            assert walked(headers.walk_function(), window, rest) == expected


@pytest.mark.parametrize("walk", [walk_headers, headers.walk_function()], ids=["python", "native"])
def test_records_are_not_checked_in_front_of_their_checksum(walk: Any) -> None:
    with pytest.raises(ValueError, match=r"checksums|sizes"):
        walked(walk, memoryview(build_batch([SimpleRecord()])), (0, (0, 10), False, True))


def test_both_checks_of_unpacked_records_say_the_same() -> None:
    random, memory = Random(25), GuardedMemory()
    for trial in range(TRIALS):
        data = some_batch(random)[HEADER_BYTES:]
        data = data[: random.randrange(len(data) + 1)] if random.random() < 0.5 else data
        count, last_delta = random.choice([0, 1, 3, 2**31 - 1]), random.choice([0, 2, 2**31 - 1])
        expected = record_walk.check_records(data, count, last_delta)
        assert check_records(memory.hold(data), count, last_delta) == expected, trial
        assert check_records(data, count, last_delta) == expected, trial


def places(batches: list[bytes]) -> list[RecordsPlace]:
    """Return the places of the records of batches that are one after the other."""
    places, at = [], 0
    for batch in batches:
        header = BatchHeader._make(HEADER.unpack(batch[:HEADER_BYTES]))
        size_bytes = len(batch) - HEADER_BYTES
        count = min(header.record_count, size_bytes // 7)
        rest = header.base_offset, header.last_offset_delta
        places.append(RecordsPlace(at + HEADER_BYTES, size_bytes, count, *rest))
        at += len(batch)
    return places


def test_both_walks_make_the_same_digests_of_sound_batches_and_none_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    random, memory, digest_counts = Random(25), GuardedMemory(), set()
    for trial in range(TRIALS):
        batches = [some_batch(random) for _ in range(random.randrange(1, 5))]
        data = memory.hold(b"".join(batches))
        digests = digest_records(data, places(batches))
        with monkeypatch.context() as patch:
            patch.setattr(unpacked_records, "is_native_available", lambda: False)
            assert digest_records(data, places(batches)).tolist() == digests.tolist(), trial
        digest_counts.add(len(digests))
    assert {0, 1, 2, 3} <= digest_counts


def test_no_digest_is_made_outside_of_the_data() -> None:
    for start, size_bytes in ((0, 11), (11, 0), (5, 2**63 - 1), (2**63, 2**63)):
        with pytest.raises(ValueError, match="outside of the data"):
            digest_records(bytes(10), [RecordsPlace(start, size_bytes, 1, 0, 0)])


def test_a_batch_that_contradicts_itself_hides_no_digests_of_its_neighbours() -> None:
    sound = [
        build_batch([SimpleRecord(key, b"value", 5)], at) for at, key in enumerate((b"a", b"b"))
    ]
    broken = bytearray(sound[0])
    broken[HEADER_BYTES] = 0x7F
    batches = [sound[0], bytes(broken), sound[1]]
    assert digest_records(b"".join(batches), places(batches))[:, OFFSET].tolist() == [0, 1]
