"""The walks over uncompressed records of batches, in native code where it is available.

`check_records` imports no NumPy.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from spindle.columnar import record_walk
from spindle.common.native import is_native_available
from spindle.common.ports import Bytes


class RecordsPlace(NamedTuple):
    """The records of a batch in memory, and what its header says about them."""

    start: int
    size_bytes: int
    record_count: int
    base_offset: int
    last_delta: int


def check_records(data: Bytes, count: int, last_delta: int) -> tuple[int, int]:
    """Check the uncompressed records of a batch; see `record_walk.check_records`."""
    if is_native_available():
        from spindle import _native

        return _native.check_records(data, count, last_delta)
    return record_walk.check_records(data, count, last_delta)


def digest_records(data: Bytes, batches: Sequence[RecordsPlace]) -> Any:
    """Return the digests of the records that have a key, as rows of DIGEST_WIDTH (`tables`).

    A batch whose records contradict its header or each other has none.

    Args:
        data: the memory in which the records are.
    """
    import numpy as np

    from spindle.columnar.tables import DIGEST_WIDTH

    if is_native_available():
        from spindle import _native

        digests = np.frombuffer(_native.digest_records(data, batches), np.int64)
    else:
        digests = np.array(_digests(memoryview(data), batches), np.int64)
    return digests.reshape(-1, DIGEST_WIDTH)


def _digests(data: memoryview, batches: Sequence[RecordsPlace]) -> list[tuple[int, ...]]:
    digests: list[tuple[int, ...]] = []
    for start, size_bytes, count, base_offset, last_delta in batches:
        if not 0 <= start <= start + size_bytes <= len(data):
            raise ValueError("a batch is outside of the data")
        records = data[start : start + size_bytes]
        digests += record_walk.batch_digests(records, count, base_offset, last_delta)
    return digests
