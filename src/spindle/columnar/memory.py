"""Read and copy memory in compiled code, and compile the functions of this package.

Memory is accessed by address without checks: callers check every position against the end of their
buffer. CRC-32C uses the processor's instruction if there is one (x86 with SSE 4.2, ARM with CRC),
else a table.
"""

import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from spindle.common.cache_directory import cache_directory, user_cache

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _choose_cache_directory() -> None:
    """Set NUMBA_CACHE_DIR if numba could write to none of its cache directories.

    numba stores machine code next to the module or in the user's cache, and fails if both are
    read-only.
    """
    if "NUMBA_CACHE_DIR" in os.environ:
        return
    home_cache = user_cache()
    candidates = [Path(__file__).parent]
    if home_cache is not None:
        candidates += [home_cache, home_cache.parent]
    if not any(path.is_dir() and os.access(path, os.W_OK) for path in candidates):
        os.environ["NUMBA_CACHE_DIR"] = str(cache_directory() / "numba")


_choose_cache_directory()

import llvmlite.binding  # noqa: E402  (numba reads its configuration on import)
import numba  # noqa: E402
import numpy as np  # noqa: E402
from llvmlite import ir  # noqa: E402
from numba.core import cgutils, types  # noqa: E402
from numba.extending import intrinsic  # noqa: E402

_BYTE: Final = ir.IntType(8)
_INT16: Final = ir.IntType(16)
_INT32: Final = ir.IntType(32)
_INT64: Final = ir.IntType(64)
_CRC_POLYNOMIAL: Final = 0x82F63B78
_ALL_ONES: Final = 0xFFFFFFFF


def compiled(function: _Function) -> _Function:
    """Compile at the first call and keep the machine code on disk. It runs without the GIL."""
    return cast(_Function, numba.njit(function, cache=True, nogil=True, boundscheck=False))


def inlined(function: _Function) -> _Function:
    """Compile into every caller."""
    return cast(_Function, numba.njit(function, inline="always"))


def _instruction(function: Callable[..., Any]) -> Any:
    return intrinsic(function)


def _load(builder: Any, address: Any, width: Any) -> Any:
    return builder.load(builder.inttoptr(address, width.as_pointer()), align=1)


def _declared(module: Any, kind: Any, name: str) -> Any:
    return cgutils.get_or_insert_function(module, kind, name)  # type: ignore[no-untyped-call]


@_instruction
def byte_at(typing_context: Any, address: Any) -> Any:
    """Return the byte at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.zext(_load(builder, arguments[0], _BYTE), _INT64)

    return types.int64(types.int64), generate


@_instruction
def big_int16_at(typing_context: Any, address: Any) -> Any:
    """Return the signed big-endian 16-bit number at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.sext(builder.bswap(_load(builder, arguments[0], _INT16)), _INT64)

    return types.int64(types.int64), generate


@_instruction
def big_int32_at(typing_context: Any, address: Any) -> Any:
    """Return the signed big-endian 32-bit number at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.sext(builder.bswap(_load(builder, arguments[0], _INT32)), _INT64)

    return types.int64(types.int64), generate


@_instruction
def big_int64_at(typing_context: Any, address: Any) -> Any:
    """Return the signed big-endian 64-bit number at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bswap(_load(builder, arguments[0], _INT64))

    return types.int64(types.int64), generate


@_instruction
def little_uint64_at(typing_context: Any, address: Any) -> Any:
    """Return the unsigned little-endian 64-bit number at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _load(builder, arguments[0], _INT64)

    return types.uint64(types.int64), generate


@_instruction
def little_uint32_at(typing_context: Any, address: Any) -> Any:
    """Return the unsigned little-endian 32-bit number at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.zext(_load(builder, arguments[0], _INT32), _INT64)

    return types.uint64(types.int64), generate


@_instruction
def put_byte(typing_context: Any, address: Any, value: Any) -> Any:
    """Store the lowest eight bits of a number at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target = builder.inttoptr(arguments[0], _BYTE.as_pointer())
        builder.store(builder.trunc(arguments[1], _BYTE), target)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@_instruction
def copy(typing_context: Any, target: Any, source: Any, size_bytes: Any) -> Any:
    """Copy bytes between addresses with memcpy."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        cgutils.raw_memcpy(  # type: ignore[no-untyped-call]
            builder,
            builder.inttoptr(arguments[0], _BYTE.as_pointer()),
            builder.inttoptr(arguments[1], _BYTE.as_pointer()),
            arguments[2],
            1,
        )
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


def _crc_instruction() -> tuple[str, str] | None:
    """Return the names of the CRC-32C instructions (for 8 bytes, for 1), None without them."""
    if os.environ.get("NUMBA_CPU_NAME"):
        return None  # the user compiles for another processor
    features = llvmlite.binding.get_host_cpu_features()
    if platform.machine() in ("x86_64", "AMD64") and features.get("sse4.2"):
        return "llvm.x86.sse42.crc32.64.64", "llvm.x86.sse42.crc32.32.8"
    if platform.machine() in ("aarch64", "arm64") and features.get("crc"):
        return "llvm.aarch64.crc32cx", "llvm.aarch64.crc32cb"
    return None


_CRC_NAMES: Final = _crc_instruction()
_HAS_CRC_INSTRUCTION: Final = _CRC_NAMES is not None
_IS_X86: Final = _CRC_NAMES is not None and "x86" in _CRC_NAMES[0]


@_instruction
def _crc_of_8(typing_context: Any, crc: Any, address: Any) -> Any:
    """Return the CRC after the eight bytes at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        assert _CRC_NAMES is not None
        state = _INT64 if _IS_X86 else _INT32
        kind = ir.FunctionType(state, [state, _INT64])
        function = _declared(builder.module, kind, _CRC_NAMES[0])
        before = arguments[0] if _IS_X86 else builder.trunc(arguments[0], _INT32)
        after = builder.call(function, [before, _load(builder, arguments[1], _INT64)])
        return after if _IS_X86 else builder.zext(after, _INT64)

    return types.int64(types.int64, types.int64), generate


@_instruction
def _crc_of_1(typing_context: Any, crc: Any, address: Any) -> Any:
    """Return the CRC after the byte at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        assert _CRC_NAMES is not None
        width = _BYTE if _IS_X86 else _INT32
        kind = ir.FunctionType(_INT32, [_INT32, width])
        function = _declared(builder.module, kind, _CRC_NAMES[1])
        byte = _load(builder, arguments[1], _BYTE)
        data = byte if _IS_X86 else builder.zext(byte, _INT32)
        after = builder.call(function, [builder.trunc(arguments[0], _INT32), data])
        return builder.zext(after, _INT64)

    return types.int64(types.int64, types.int64), generate


def _crc_table() -> "np.ndarray[Any, Any]":
    table = np.zeros(256, np.int64)
    for index in range(256):
        crc = index
        for _ in range(8):
            crc = crc >> 1 ^ (_CRC_POLYNOMIAL if crc & 1 else 0)
        table[index] = crc
    return table


_CRC_TABLE: Final = _crc_table()


@compiled
def crc_with_table(address: int, size_bytes: int) -> int:
    """Return the CRC-32C of the bytes at an address, on any processor."""
    crc = _ALL_ONES
    for position in range(address, address + size_bytes):
        crc = (crc >> 8) ^ _CRC_TABLE[(crc ^ byte_at(position)) & 0xFF]
    return crc ^ _ALL_ONES


def _shift_tables() -> "dict[int, np.ndarray[Any, Any]]":
    """Return tables by a power of two n: they give the CRC after n zero bytes, byte by byte."""
    values = np.arange(256) << 8 * np.arange(4)[:, None]
    table = values >> 8 ^ _CRC_TABLE[values & 0xFF]  # after one zero byte
    tables = {}
    for power in range(1, 12):
        # The CRC is linear, so the tables for n bytes, used twice, are those for 2 n bytes.
        table = np.bitwise_xor.reduce([table[k][table >> 8 * k & 0xFF] for k in range(4)])
        tables[1 << power] = table
    return tables


_LONG: Final = 1024
_SHORT: Final = 256
_SHIFTS: Final = _shift_tables()
_AFTER_LONG: Final = _SHIFTS[_LONG]
_AFTER_TWO_LONG: Final = _SHIFTS[2 * _LONG]
_AFTER_SHORT: Final = _SHIFTS[_SHORT]
_AFTER_TWO_SHORT: Final = _SHIFTS[2 * _SHORT]


@inlined
def _shifted(table: Any, crc: int) -> int:
    low: int = table[0, crc & 0xFF] ^ table[1, crc >> 8 & 0xFF]
    high: int = table[2, crc >> 16 & 0xFF] ^ table[3, crc >> 24 & 0xFF]
    return low ^ high


@inlined
def _crc_of_three(crc: int, address: int, block: int, after_one: Any, after_two: Any) -> int:
    """Return the CRC after three blocks in a row.

    An instruction waits for the result of the one before it, so three chains at the same time are
    about three times as fast as one.
    """
    second = third = 0
    for position in range(address, address + block, 8):
        crc = _crc_of_8(crc, position)
        second = _crc_of_8(second, position + block)
        third = _crc_of_8(third, position + 2 * block)
    return _shifted(after_two, crc) ^ _shifted(after_one, second) ^ third


def _crc_with_instruction(address: int, size_bytes: int) -> int:
    crc = _ALL_ONES
    end = address + size_bytes
    while end - address >= 3 * _LONG:
        crc = _crc_of_three(crc, address, _LONG, _AFTER_LONG, _AFTER_TWO_LONG)
        address += 3 * _LONG
    while end - address >= 3 * _SHORT:
        crc = _crc_of_three(crc, address, _SHORT, _AFTER_SHORT, _AFTER_TWO_SHORT)
        address += 3 * _SHORT
    while end - address >= 8:
        crc = _crc_of_8(crc, address)
        address += 8
    while address < end:
        crc = _crc_of_1(crc, address)
        address += 1
    return crc ^ _ALL_ONES


crc32c_at = compiled(_crc_with_instruction) if _HAS_CRC_INSTRUCTION else crc_with_table
"""CRC-32C of the bytes at an address; compiled code may call it."""
