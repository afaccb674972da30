"""The codecs: both directions, framings of other clients, the limit of a decompressed batch."""

import gzip

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindle.common.errors import CorruptRecords
from spindle.protocol.records.compression import (
    Codec,
    DecompressionBuffer,
    compress,
    decompress,
)

REAL_CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
SAMPLE = b"spindle " * 40_000


@pytest.mark.parametrize("codec", list(Codec))
@given(data=st.binary(max_size=2000), repeat=st.integers(1, 100))
def test_compressed_data_is_decompressed_to_the_original(
    codec: Codec, data: bytes, repeat: int
) -> None:
    plain = data * repeat
    assert bytes(decompress(codec, compress(codec, plain))) == plain


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("view", [bytearray, memoryview])
def test_any_buffer_is_taken(codec: Codec, view: type) -> None:
    assert bytes(decompress(codec, view(compress(codec, view(SAMPLE))))) == SAMPLE


@pytest.mark.parametrize(("codec", "low", "high"), [(Codec.GZIP, 1, 9), (Codec.ZSTD, 1, 19)])
def test_a_higher_level_compresses_more(codec: Codec, low: int, high: int) -> None:
    data = b"".join(b"%d spindle %d\n" % (number % 7, number * number) for number in range(9000))
    packed = [compress(codec, data, level) for level in (low, high)]
    assert len(packed[0]) > len(packed[1])
    assert all(bytes(decompress(codec, one)) == data for one in packed)


@pytest.mark.parametrize("codec", REAL_CODECS)
def test_a_batch_that_unpacks_to_more_than_the_limit_is_refused(codec: Codec) -> None:
    packed = compress(codec, SAMPLE)
    assert len(packed) < len(SAMPLE)
    with pytest.raises(CorruptRecords, match=r"more than the limit of 319999 bytes"):
        decompress(codec, packed, len(SAMPLE) - 1)
    assert bytes(decompress(codec, packed, len(SAMPLE))) == SAMPLE


@pytest.mark.parametrize("codec", REAL_CODECS)
def test_garbage_and_cut_streams_are_refused(codec: Codec) -> None:
    packed = compress(codec, SAMPLE)
    for bad in (b"\xff\x00garbage" * 5, packed[: len(packed) // 2], packed[:-1]):
        with pytest.raises(CorruptRecords, match=codec.name.lower()):
            decompress(codec, bad)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_undefined_codec_is_refused(codec: int) -> None:
    with pytest.raises(CorruptRecords, match=f"codec {codec} is not defined"):
        decompress(codec, b"x")
    with pytest.raises(ValueError, match=f"codec {codec} is not defined"):
        compress(codec, b"x")


def test_lz4_is_the_frame_that_java_reads() -> None:
    """Version 1, independent blocks, no checksums, 64 KiB blocks, and the right header checksum."""
    packed = compress(Codec.LZ4, SAMPLE)
    assert packed[:7].hex() == "04224d18604082"
    assert packed[-4:] == bytes(4)


def test_lz4_with_linked_blocks_and_checksums_is_read() -> None:
    assert bytes(decompress(Codec.LZ4, bytes(cramjam.lz4.compress(SAMPLE)))) == SAMPLE


def test_lz4_stores_what_does_not_shrink() -> None:
    import random

    noise = random.Random(1).randbytes(70_000)
    packed = compress(Codec.LZ4, noise)
    assert len(packed) == len(noise) + 7 + 2 * 4 + 4
    assert bytes(decompress(Codec.LZ4, packed)) == noise


def test_snappy_is_written_in_blocks_and_read_raw_as_well() -> None:
    assert compress(Codec.SNAPPY, b"abc")[:16].hex() == "82534e41505059000000000100000001"
    assert bytes(decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(SAMPLE)))) == SAMPLE


def test_a_snappy_block_that_runs_past_the_end_is_refused() -> None:
    packed = bytearray(compress(Codec.SNAPPY, b"abc"))
    packed[16:20] = (2**31 - 1).to_bytes(4, "big")
    with pytest.raises(CorruptRecords, match="block of 2147483647 bytes"):
        decompress(Codec.SNAPPY, packed)
    with pytest.raises(CorruptRecords, match="2 bytes after the last block"):
        decompress(Codec.SNAPPY, compress(Codec.SNAPPY, b"abc") + b"xx")


def test_gzip_of_another_library_is_read() -> None:
    assert bytes(decompress(Codec.GZIP, gzip.compress(SAMPLE))) == SAMPLE


@pytest.mark.parametrize("codec", list(Codec))
def test_a_buffer_is_used_again_and_grows(codec: Codec) -> None:
    buffer = DecompressionBuffer()
    for size in (10, 100_000, 3_000_000, 500, 20_000_000, 0, 100_000):
        plain = bytes(range(250)) * (size // 250)
        assert decompress(codec, compress(codec, plain), buffer=buffer) == plain
    assert len(buffer.memory) <= 8 * 1024 * 1024


def test_a_buffer_does_not_lift_the_limit() -> None:
    buffer = DecompressionBuffer()
    packed = compress(Codec.ZSTD, bytes(100_000))
    decompress(Codec.ZSTD, packed, buffer=buffer)
    with pytest.raises(CorruptRecords, match="limit of 70000 bytes"):
        decompress(Codec.ZSTD, packed, 70_000, buffer)
