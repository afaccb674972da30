"""Read batch headers: the compiled walk over them, and their fields as NumPy columns.

The walk jumps from header to header and touches no records, unless checksums are wanted. So large
batches are passed without being read from the disk. It is compiled C if Spindle was installed with
a compiler (`spindle.log.cleaning.native_kernel`), because the import of numba takes longer than the
walk over some hundred MiB; else numba compiles it.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, Final

import numpy as np

from spindle.columnar.header_table import (
    FIELD_COUNT,
    RECORDS_WIDTH,
    WALK_BATCHES,
    WALK_FINISHED,
    WALK_NEXT_OFFSET,
    WALK_POSITION,
    WALK_STATUS,
    WALK_TORN,
    WALK_WIDTH,
)
from spindle.columnar.tables import SCAN_FINDINGS
from spindle.log.cleaning.native_kernel import load_library

MAX_BATCHES: Final = 8192


@cache
def header_walk() -> Callable[..., None]:
    """Return `header_kernel.walk_headers`, or the same in C."""
    library = load_library()
    if library is None:
        # Its import takes longer than the walk in C over some hundred MiB, as it needs numba.
        from spindle.columnar.header_kernel import walk_headers

        return walk_headers

    def walk(
        address: int,
        position: int,
        end: int,
        file_end: int,
        limits: Any,
        check_crcs: int,
        table: Any,
        records: Any,
        result: Any,
    ) -> None:
        library.spindle_walk_headers(
            address,
            position,
            end,
            file_end,
            limits.ctypes.data,
            check_crcs,
            table.ctypes.data,
            table.shape[1],
            records.ctypes.data if records.shape[0] else None,
            result.ctypes.data,
        )

    return walk


class HeaderWalk:
    """Calls the walk on windows of a file, in order.

    After each call, `position` is where to read on in the file, `next_offset` the offset after the
    last batch passed, `is_finished` True at the end offset, and `is_torn` True before a batch that
    the file does not hold as a whole. `finding` is the fault of an impossible header, else it is
    empty.

    Args:
        start_offset, end_offset: Batches that hold offsets of [start, end) are wanted.
        check_crcs: Compute the checksums, for which the windows must hold whole batches.
        check_records: Also walk over the records of batches with right checksums; the result is in
            `records` after each call, an array (RECORDS_WIDTH, batches).
    """

    def __init__(
        self,
        start_offset: int,
        end_offset: int,
        *,
        check_crcs: bool,
        check_records: bool = False,
    ) -> None:
        self._walk = header_walk()
        self._limits = np.array([start_offset, end_offset], np.int64)
        self._check_crcs = int(check_crcs)
        self._table = np.empty((FIELD_COUNT, MAX_BATCHES), np.int64)
        width = RECORDS_WIDTH if check_records else 0
        self._records = np.empty((width, MAX_BATCHES), np.int64)
        self.records = self._records[:, :0]
        self.position = 0
        self.next_offset = start_offset
        self.is_finished = start_offset >= end_offset
        self.is_torn = False
        self.finding = ""

    def fields(self, address: int, size_bytes: int, window_at: int, file_bytes: int) -> Any:
        """Return the fields of the batches in a window as a (FIELD_COUNT, batches) array.

        Args:
            address, size_bytes: The window in memory.
            window_at: Its position in the file.
            file_bytes: The size of the file.
        """
        result = np.zeros(WALK_WIDTH, np.int64)
        result[WALK_NEXT_OFFSET] = self.next_offset
        self._walk(
            address - window_at,
            window_at,
            window_at + size_bytes,
            file_bytes,
            self._limits,
            self._check_crcs,
            self._table,
            self._records,
            result,
        )
        self.position = int(result[WALK_POSITION])
        self.next_offset = int(result[WALK_NEXT_OFFSET])
        self.is_finished = bool(result[WALK_FINISHED])
        self.is_torn = bool(result[WALK_TORN])
        self.finding = SCAN_FINDINGS[int(result[WALK_STATUS])]
        count = int(result[WALK_BATCHES])
        self.records = self._records[:, :count]
        return self._table[:, :count].copy()
