"""The bytes of `.index` and `.timeindex`, up to a limit."""

import os
from pathlib import Path
from typing import Final, NamedTuple

_BLOCK_BYTES: Final = 96 * 1024
MAX_INDEX_BYTES: Final = 24 << 20
"""Maximum checked bytes of an index; brokers roll a segment at 10 MiB by default."""


class IndexContent(NamedTuple):
    """An index file.

    Attributes:
        data: its bytes up to its first block of zeros, at most `MAX_INDEX_BYTES`.
        size_bytes: of the file.
        is_whole: the data has all entries.
    """

    data: bytes | bytearray
    size_bytes: int
    is_whole: bool = True


def read_index(path: Path) -> IndexContent | None:
    """Read an index file without the zeros that a broker preallocates; None if there is none."""
    data = bytearray()
    try:
        with path.open("rb", buffering=0) as file:
            while block := file.read(_BLOCK_BYTES):
                if len(data) >= MAX_INDEX_BYTES:
                    return IndexContent(data, os.fstat(file.fileno()).st_size, not any(block))
                data += block
                if not any(block):
                    break
            return IndexContent(data, os.fstat(file.fileno()).st_size)
    except FileNotFoundError:
        return None
