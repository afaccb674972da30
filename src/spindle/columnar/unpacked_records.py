"""The walks over uncompressed records of batches: compiled C, or numba where that is missing.

With C, nothing here imports numba, and `check_records` not even NumPy.
"""

import ctypes
from typing import Any

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
    finding = library.spindle_check_records(
        bytes(data), len(data), count, last_delta, ctypes.addressof(byte)
    )
    return int(finding), byte.value


def _check_with_numba(data: Bytes, count: int, last_delta: int) -> tuple[int, int]:
    import numpy as np

    from spindle.columnar.record_walk import walk_batch
    from spindle.columnar.tables import DIGEST_WIDTH, address_of

    start = address_of(data) if data else 0
    no_digests = np.zeros((0, DIGEST_WIDTH), np.int64)
    status, at, _ = walk_batch(start, start + len(data), count, 0, last_delta, no_digests, 0)
    return status, at


def digest_records(table: Any) -> Any:
    """Return the digests of the records that have a key, as rows of DIGEST_WIDTH (`tables`).

    A batch whose records contradict its header or each other has none.

    Args:
        table: the batches in memory, an int64 array (batches, TABLE_WIDTH) whose counts of records
            fit into the bytes of their batches.
    """
    import numpy as np

    from spindle.columnar.tables import COUNT, DIGEST_WIDTH

    rows = np.zeros((int(table[:, COUNT].sum()), DIGEST_WIDTH), np.int64)
    library = load_library()
    if library is None:
        from spindle.columnar import record_walk

        return rows[: record_walk.digest_records(table, rows)]
    table = np.ascontiguousarray(table)
    made = library.spindle_digest_records(table.ctypes.data, len(table), rows.ctypes.data)
    return rows[:made]
