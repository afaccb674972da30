"""Read batch headers: the walk over them, and their fields as NumPy columns.

The walk jumps from header to header and touches no records, unless checksums are wanted. So large
batches are passed without being read from the disk.
"""

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from spindle.columnar import header_walk
from spindle.columnar.header_table import FIELD_COUNT, RECORDS_WIDTH
from spindle.columnar.tables import SCAN_FINDINGS
from spindle.common.native import is_native_available
from spindle.common.ports import Bytes

MAX_BATCHES: Final = 8192


def walk_function() -> Callable[..., tuple[int, int, int, int, bool, bool]]:
    """Return `header_walk.walk_headers`, or the same in native code."""
    if is_native_available():
        from spindle import _native

        return _native.walk_headers
    return header_walk.walk_headers


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
        self._walk = walk_function()
        self._limits = start_offset, end_offset
        self._check_crcs = check_crcs
        self._table = np.empty((FIELD_COUNT, MAX_BATCHES), np.int64)
        width = RECORDS_WIDTH if check_records else 0
        self._records = np.empty((width, MAX_BATCHES), np.int64)
        self.records = self._records[:, :0]
        self.position = 0
        self.next_offset = start_offset
        self.is_finished = start_offset >= end_offset
        self.is_torn = False
        self.finding = ""

    def fields(self, window: Bytes, window_at: int, file_bytes: int) -> Any:
        """Return the fields of the batches in a window as a (FIELD_COUNT, batches) array.

        Args:
            window: Bytes of the file.
            window_at: Their position in the file.
            file_bytes: The size of the file.
        """
        walked = header_walk.WalkedHeaders._make(
            self._walk(
                window,
                window_at,
                file_bytes,
                self._limits,
                self.next_offset,
                self._check_crcs,
                self._table,
                self._records,
            )
        )
        self.position, self.next_offset = walked.position, walked.next_offset
        self.is_finished, self.is_torn = walked.is_finished, walked.is_torn
        self.finding = SCAN_FINDINGS[walked.finding]
        self.records = self._records[:, : walked.batch_count]
        return self._table[:, : walked.batch_count].copy()
