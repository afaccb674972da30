"""Batches with a correct CRC and hostile content, as any client with the right to write can send.

Each pretends something that its records do not keep: they do not parse, unpack to far more than a
broker decodes, or have other counts, offsets and timestamps than the header says.
"""

from collections.abc import Callable
from functools import lru_cache
from random import Random
from typing import Any, Final, TypeAlias

import cramjam

from spindle.protocol.records.batch import HEADER_BYTES, BatchHeader, read_header
from spindle.protocol.records.builder import SimpleRecord, build_batch, seal_batch
from spindle.protocol.records.compression import Codec, compress
from spindle.protocol.records.record import decoded_bytes_limit, encode_record
from spindle.protocol.records.varint import encode_varint

_MIB: Final = 1024 * 1024
_MANY_RECORDS: Final = 900_000
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
    """Return a batch of one record that unpacks to a size on either side of a broker's limit."""
    codec = random.choice((Codec.GZIP, Codec.LZ4, Codec.ZSTD, Codec.ZSTD))
    size_bytes = random.choice(
        (
            65_536 + random.randrange(-3, 4),
            decoded_bytes_limit(0) - _MIB,
            decoded_bytes_limit(0) + _MIB,
            200 * _MIB,
        )
    )
    return forge(sound(now_ms), _bomb_payload(codec, size_bytes), attributes=codec)


@lru_cache(maxsize=16)
def _bomb_payload(codec: int, size_bytes: int) -> bytes:
    body = encode_record(0, 0, b"k", bytes(size_bytes))
    if codec == Codec.LZ4:
        return bytes(cramjam.lz4.compress(body))
    return compress(codec, body)


def many_records(random: Random, now_ms: int) -> bytes:
    """Return a small batch of as many records as a broker just decodes."""
    payload = _many_payload()
    timestamps = {"base_timestamp": now_ms - 5, "max_timestamp": now_ms}
    return forge(
        sound(now_ms),
        payload,
        attributes=int(Codec.ZSTD),
        record_count=_MANY_RECORDS,
        last_offset_delta=_MANY_RECORDS - 1,
        **timestamps,
    )


@lru_cache(maxsize=1)
def _many_payload() -> bytes:
    parts = []
    for delta in range(_MANY_RECORDS):
        body = b"\0\0" + encode_varint(delta) + b"\2k\1\0"
        parts.append(encode_varint(len(body)) + body)
    return compress(Codec.ZSTD, b"".join(parts))


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
    bomb,
    many_records,
    lying_snappy,
    lying_count,
    lying_offsets,
    lying_timestamps,
    odd_flags,
)
