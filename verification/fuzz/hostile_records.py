"""Batches with a correct CRC and hostile content, as any client with the right to write can send.

The header of each contradicts its records: they do not parse, unpack to far more than a
broker decodes, or have other counts, offsets and timestamps than the header says.
"""

from collections.abc import Callable
from functools import cache
from random import Random
from typing import Any, Final, TypeAlias

import cramjam

from spindle.log.segments.lookup import MAX_SEARCHED_RECORDS
from spindle.protocol.records.batch import HEADER_BYTES, BatchHeader, read_header
from spindle.protocol.records.builder import SimpleRecord, build_batch, seal_batch
from spindle.protocol.records.compression import Codec, compress
from spindle.protocol.records.record import (
    MAX_DECODED_RECORDS,
    decoded_bytes_limit,
    encode_record,
)

_MIB: Final = 1024 * 1024
_LIE_MS: Final = 600_000
_INT64: Final = 2**63 - 1

HostileBatch: TypeAlias = Callable[[Random, int], bytes]
"""Makes a batch from random numbers and the present time in ms."""


def forge(batch: bytes, payload: bytes | None = None, **header: int) -> bytes:
    """Return a batch with another payload and other fields of the header, and its correct CRC."""
    changed: BatchHeader = read_header(batch)._replace(**header)
    return seal_batch(changed, batch[HEADER_BYTES:] if payload is None else payload)


def sound(now_ms: int, count: int = 1, value_bytes: int = 50, **options: Any) -> bytes:
    """Return an honest batch."""
    records = [SimpleRecord(b"k%d" % n, b"v" * value_bytes, now_ms) for n in range(count)]
    return build_batch(records, **options)


def unparsable(random: Random, now_ms: int) -> bytes:
    """Return a batch whose records do not parse, in the clear or compressed."""
    codec = random.choice(tuple(Codec))
    body = bytearray(sound(now_ms, 3)[HEADER_BYTES:])
    pick = random.randrange(5)
    if pick == 0:
        body[0:9] = b"\xff" * 9
    elif pick == 1:
        body[random.randrange(8)] = random.randrange(256)
    elif pick == 2:
        del body[random.randrange(1, len(body)) :]
    elif pick == 3:
        body += random.randbytes(random.randrange(1, 40))
    else:
        body[:] = random.randbytes(random.randrange(0, 80))
    return forge(sound(now_ms, 3), compress(codec, bytes(body)), attributes=codec)


def not_of_its_codec(random: Random, now_ms: int) -> bytes:
    """Return a batch whose payload is no stream of its codec, or a damaged one."""
    codec = random.choice((Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD))
    payload = bytearray(compress(codec, sound(now_ms, 3)[HEADER_BYTES:]))
    if random.random() < 0.5:
        payload = bytearray(random.randbytes(random.randrange(0, 60)))
    elif payload:
        payload[random.randrange(min(len(payload), 24))] = random.randrange(256)
    return forge(sound(now_ms, 3), bytes(payload), attributes=codec)


def bomb(random: Random, now_ms: int) -> bytes:
    """Return a batch of one record that unpacks to a size on either side of a broker's limits.

    Half of them announce a timestamp that their record does not have, so that a search by time
    continues with the next batch.
    """
    codec, size_bytes = random.choice(_BOMBS)
    max_timestamp = now_ms + random.choice((0, _LIE_MS))
    payload = _bomb_payload(codec, size_bytes)
    return forge(sound(now_ms), payload, attributes=int(codec), max_timestamp=max_timestamp)


_BOMBS: Final = (
    *[(codec, 65_530) for codec in Codec],
    *[(codec, 65_540) for codec in Codec],
    (Codec.GZIP, decoded_bytes_limit(0) - _MIB),
    (Codec.LZ4, decoded_bytes_limit(0) - _MIB),
    (Codec.ZSTD, decoded_bytes_limit(0) - _MIB),
    (Codec.ZSTD, decoded_bytes_limit(0) + _MIB),
    *6 * [(Codec.ZSTD, 200 * _MIB)],
)
"""Codecs and sizes: around the limit of a small batch, around that of any batch, far above."""


def prepare() -> None:
    """Compress the large payloads, which takes a second."""
    for codec, size_bytes in _BOMBS:
        _bomb_payload(codec, size_bytes)


@cache
def _bomb_payload(codec: int, size_bytes: int) -> bytes:
    body = encode_record(0, 0, b"k", bytes(size_bytes))
    return bytes(cramjam.lz4.compress(body)) if codec == Codec.LZ4 else compress(codec, body)


def many_records(random: Random, now_ms: int) -> bytes:
    """Return a small batch of as many records as a broker decodes or searches, or of one more.

    Their offsets are all the same.
    """
    count = random.choice((MAX_DECODED_RECORDS, MAX_SEARCHED_RECORDS)) + random.choice((0, 1))
    return forge(
        sound(now_ms),
        _payload_of(count),
        attributes=int(Codec.ZSTD),
        record_count=count,
        last_offset_delta=count - 1,
        max_timestamp=now_ms + random.choice((0, _LIE_MS)),
    )


@cache
def _payload_of(count: int) -> bytes:
    return compress(Codec.ZSTD, count * encode_record(0, 0, b"k", b""))


def lying_snappy(random: Random, now_ms: int) -> bytes:
    """Return a snappy batch whose blocks announce other lengths than they have."""
    announced = encode_announced(random.choice((0, 1, 65_535, 1 << 28, (1 << 32) - 1)))
    block = announced + random.randbytes(random.randrange(0, 20))
    if random.random() < 0.5:
        head = b"\x82SNAPPY\x00" + bytes.fromhex("0000000100000001")
        length = random.choice((len(block), -1, 2**31 - 1, 0)) & 0xFFFFFFFF
        block = head + length.to_bytes(4, "big") + block
    return forge(sound(now_ms), block, attributes=int(Codec.SNAPPY))


def encode_announced(size_bytes: int) -> bytes:
    """Return a size as snappy writes it in front of a block."""
    parts = bytearray()
    while size_bytes >= 0x80:
        parts.append(size_bytes & 0x7F | 0x80)
        size_bytes >>= 7
    return bytes((*parts, size_bytes))


def lying_count(random: Random, now_ms: int) -> bytes:
    """Return a batch with another number of records than its header says."""
    count = random.choice((1, 2, 4, 1000, 1_000_001, 2**31 - 1))
    return forge(sound(now_ms, 3), record_count=count, last_offset_delta=count - 1)


def lying_offsets(random: Random, now_ms: int) -> bytes:
    """Return a batch whose records have offset deltas that its header excludes."""
    deltas = random.choice(((0, 0), (5, 1), (-1, 0), (2**31 - 1, 0), (-(2**31), 0)))
    body = b"".join(encode_record(delta, 0, b"k", b"v") for delta in deltas)
    return forge(sound(now_ms, 2), body)


def lying_timestamps(random: Random, now_ms: int) -> bytes:
    """Return a batch whose header announces a timestamp that no record has."""
    base_ms = random.choice((now_ms - 1000, 0, -1, -_INT64 - 1, _INT64))
    max_ms = random.choice((now_ms + 60_000, now_ms, -1, -_INT64 - 1))
    body = encode_record(0, random.choice((0, 1, _INT64, -_INT64)), b"k", b"v")
    return forge(sound(now_ms), body, base_timestamp=base_ms, max_timestamp=max_ms)


def odd_flags(random: Random, now_ms: int) -> bytes:
    """Return a batch with flags that its leader or the cleaner should have set."""
    attributes = random.choice((0x08, 0x40, 0x48, 0x80, 0x7F80)) | random.choice(tuple(Codec))
    return forge(sound(now_ms), attributes=attributes)


HOSTILE_BATCHES: Final[tuple[HostileBatch, ...]] = (
    unparsable,
    not_of_its_codec,
    *3 * [bomb],
    many_records,
    lying_snappy,
    lying_count,
    lying_offsets,
    lying_timestamps,
    odd_flags,
)
