"""Compress and decompress record batches with their five codecs, up to a limit of size.

Kafka's readers accept only special forms of two codecs. LZ4 is the frame format with *independent*
blocks of at most 64 KiB and no checksums. Snappy is cut into blocks behind a 16-byte header
(framing of the xerial library); some clients send one raw block instead. This module reads both
forms and writes the first, which every client reads.
"""

from collections.abc import Callable
from enum import IntEnum
from struct import Struct
from threading import Lock
from typing import Any, Final, TypeVar, TypeVarTuple

import cramjam

from spindle.common.errors import CorruptRecords, RecordsTooLarge
from spindle.common.ports import Bytes


class Codec(IntEnum):
    """The values of the low three attribute bits."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


CODEC_NAMES: Final = {
    "none": Codec.NONE,
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
"""The codecs by their names in `compression.type`, without `producer`."""

DEFAULT_LIMIT_BYTES: Final = 256 * 1024 * 1024
"""The most bytes of a decompressed batch if the caller gives no limit."""

MODERATE_BYTES: Final = 8 * 1024 * 1024
"""A batch that unpacks to more than this is decoded `in_turn`."""

_TURN: Final = Lock()
_BLOCK_BYTES: Final = 64 * 1024
_LZ4_FRAME_START: Final = bytes.fromhex("04224d18604082")  # v1, independent blocks, 64 KiB blocks
_LZ4_END: Final = bytes(4)
_LZ4_STORED_FLAG: Final = 0x80000000
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_START: Final = _XERIAL_MAGIC + bytes.fromhex("0000000100000001")
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_LITTLE_UINT32: Final = Struct("<I")
_BIG_INT32: Final = Struct(">i")
_OUTPUT_IS_FULL: Final = "whole buffer"


T = TypeVar("T")
Ts = TypeVarTuple("Ts")


def in_turn(function: Callable[[*Ts], T], *args: *Ts) -> T:
    """Run a function that decodes a batch of any size while no other thread runs one.

    So the memory of several large batches does not add up. Not for the event loop, and not for the
    thread of a directory: a turn can take a second.
    """
    with _TURN:
        return function(*args)


def compress(codec: int, data: Bytes, level: int | None = None) -> bytes:
    """Return the compressed form of a batch's records.

    Args:
        level: The level of gzip (1 to 9) or zstd (up to 22), None for the default of the library;
            snappy and lz4 have a single level.

    Raises:
        ValueError: the codec is not one of 0 to 4.
    """
    if codec == Codec.NONE:
        return bytes(data)
    if codec == Codec.GZIP:
        return bytes(cramjam.gzip.compress(data, level))
    if codec == Codec.SNAPPY:
        return _compress_snappy(data)
    if codec == Codec.LZ4:
        return _compress_lz4(data)
    if codec == Codec.ZSTD:
        return bytes(cramjam.zstd.compress(data, level))
    raise ValueError(f"codec {codec} is not defined; want 0 to 4")


class DecompressionBuffer:
    """Memory for the results of many calls of `decompress`, each valid until the next call."""

    __slots__ = ("memory",)

    def __init__(self) -> None:
        self.memory = bytearray()


def decompress(
    codec: int,
    data: Bytes,
    limit_bytes: int = DEFAULT_LIMIT_BYTES,
    buffer: DecompressionBuffer | None = None,
) -> Bytes:
    """Return the decompressed form of `data`; for codec 0 `data` itself.

    Args:
        buffer: its memory may be used for the result. Clearing new memory takes as long as the
            decompression of data that hardly shrinks.

    Raises:
        CorruptRecords: the codec is undefined, or the data is not a valid stream of it.
        RecordsTooLarge: the data has more than `limit_bytes` when it is decompressed.
    """
    if codec == Codec.NONE:
        return data
    if codec == Codec.SNAPPY:
        return _decompress_snappy(data, limit_bytes)
    unpack = _STREAMS.get(codec)
    if unpack is None:
        raise CorruptRecords(f"compression codec {codec} is not defined; want 0 to 4")
    return _decompress_stream(codec, unpack, data, limit_bytes, buffer or DecompressionBuffer())


def _compress_lz4(data: Bytes) -> bytes:
    view = memoryview(data)
    parts = [_LZ4_FRAME_START]
    for start in range(0, len(view), _BLOCK_BYTES):
        plain = view[start : start + _BLOCK_BYTES]
        block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
        if len(block) < len(plain):
            parts += (_LITTLE_UINT32.pack(len(block)), block)
        else:
            parts += (_LITTLE_UINT32.pack(len(plain) | _LZ4_STORED_FLAG), bytes(plain))
    parts.append(_LZ4_END)
    return b"".join(parts)


def _compress_snappy(data: Bytes) -> bytes:
    view = memoryview(data)
    parts = [_XERIAL_START]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_BIG_INT32.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(data: Bytes, limit_bytes: int) -> bytes:
    view = memoryview(data)
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _decompress_snappy_block(view, limit_bytes, limit_bytes)
    position = len(_XERIAL_START)
    parts: list[bytes] = []
    total_bytes = 0
    while position < len(view):
        if len(view) - position < 4:
            raise CorruptRecords(f"snappy: {len(view) - position} bytes after the last block")
        (block_bytes,) = _BIG_INT32.unpack_from(view, position)
        position += 4
        if not 0 <= block_bytes <= len(view) - position:
            raise CorruptRecords(
                f"snappy: block of {block_bytes} bytes, {len(view) - position} are left"
            )
        block = view[position : position + block_bytes]
        plain = _decompress_snappy_block(block, limit_bytes - total_bytes, limit_bytes)
        parts.append(plain)
        total_bytes += len(plain)
        position += block_bytes
    return b"".join(parts)


def _decompress_snappy_block(block: memoryview, left_bytes: int, limit_bytes: int) -> bytes:
    try:
        size_bytes: int = cramjam.snappy.decompress_raw_len(block)
        if size_bytes > left_bytes:
            raise _too_large(Codec.SNAPPY, limit_bytes)
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise CorruptRecords(f"snappy: {error}") from error


def _decompress_stream(
    codec: int,
    unpack: Callable[[Bytes, bytearray], Any],
    data: Bytes,
    limit_bytes: int,
    buffer: DecompressionBuffer,
) -> Bytes:
    # No trustworthy field has the size, so a bounded buffer grows until the data fits.
    size_bytes = min(limit_bytes, max(_BLOCK_BYTES, 8 * len(data)))
    while True:
        if size_bytes <= len(buffer.memory) <= limit_bytes:
            output = buffer.memory
            size_bytes = len(output)
        else:
            output = bytearray(size_bytes)
            if size_bytes <= MODERATE_BYTES:
                buffer.memory = output
        try:
            return memoryview(output)[: unpack(data, output)].toreadonly()
        except cramjam.DecompressionError as error:
            if _OUTPUT_IS_FULL not in str(error):
                raise CorruptRecords(f"{Codec(codec).name.lower()}: {error}") from error
        if size_bytes >= limit_bytes:
            raise _too_large(codec, limit_bytes)
        size_bytes = min(limit_bytes, 4 * size_bytes)
        output = bytearray()  # so that it is free before the larger one is made


def _too_large(codec: int, limit_bytes: int) -> RecordsTooLarge:
    return RecordsTooLarge(
        f"{Codec(codec).name.lower()}: the batch unpacks to more than the limit of "
        f"{limit_bytes} bytes"
    )


_STREAMS: Final[dict[int, Callable[[Bytes, bytearray], Any]]] = {
    Codec.GZIP: cramjam.gzip.decompress_into,
    Codec.LZ4: cramjam.lz4.decompress_into,
    Codec.ZSTD: cramjam.zstd.decompress_into,
}
