"""Check the records that a batch had compressed, without NumPy if the walks in C are there."""

import ctypes

from spindle.common.ports import Bytes
from spindle.log.cleaning.native_kernel import load_library


def check_records(data: Bytes, count: int, last_delta: int) -> tuple[int, int]:
    """Check the uncompressed records of a batch.

    Args:
        count, last_delta: the count of records and the largest offset delta, by the batch header.

    Return (an index into `tables.RECORD_FINDINGS`, the byte within the records).
    """
    library = load_library()
    if library is None:
        return _check_with_numba(data, count, last_delta)
    byte = ctypes.c_int64()
    # ctypes takes the address of bytes only; to copy is faster than to load NumPy for it.
    spindle_check_records = library.spindle_check_records(
        bytes(data), len(data), count, last_delta, ctypes.addressof(byte)
    )
    return int(spindle_check_records), byte.value


def _check_with_numba(data: Bytes, count: int, last_delta: int) -> tuple[int, int]:
    import numpy as np

    from spindle.pipeline.records.record_walk import walk_batch
    from spindle.pipeline.records.tables import DIGEST_WIDTH, address_of

    start = address_of(data) if data else 0
    no_digests = np.zeros((0, DIGEST_WIDTH), np.int64)
    status, at, _ = walk_batch(start, start + len(data), count, 0, last_delta, no_digests, 0)
    return status, at
