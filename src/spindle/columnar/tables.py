"""The tables that the walks over batches fill: their columns and codes, and addresses of buffers.

Nothing here imports numba or, before an address is asked for, NumPy: a caller of the native walks
does not wait for them.
"""

from typing import Final

# Columns of the batch table (int64). The kernel reads the first seven and writes ROWS.
ADDRESS: Final = 0
LENGTH: Final = 1
BASE_OFFSET: Final = 2
BASE_TIMESTAMP: Final = 3
APPEND_TIMESTAMP: Final = 4
LAST_DELTA: Final = 5
COUNT: Final = 6
ROWS: Final = 7
POSITION: Final = 8
ATTRIBUTES: Final = 9
TABLE_WIDTH: Final = 10

CREATE_TIME: Final = -(2**63)
"""The value of APPEND_TIMESTAMP for batches whose records have their own timestamps."""

# The result of a scan (int64).
SCAN_STATUS: Final = 0
SCAN_POSITION: Final = 1
SCAN_BATCHES: Final = 2
SCAN_NEXT_OFFSET: Final = 3
SCAN_FINISHED: Final = 4
SCAN_COMPUTED_CRC: Final = 5
SCAN_MIN_OFFSET: Final = 6
SCAN_MAX_OFFSET: Final = 7
SCAN_WIDTH: Final = 8

OLD_FORMAT: Final = 1
UNKNOWN_FORMAT: Final = 2
WRONG_LENGTH: Final = 3
WRONG_CRC: Final = 4
WRONG_COUNT: Final = 5
WRONG_OFFSETS: Final = 6
MISPLACED_OFFSETS: Final = 7
SCAN_FINDINGS: Final = (
    "",
    "message formats 0 and 1 are not supported",
    "the format is unknown",
    "the length is below that of a header",
    "the checksum is wrong",
    "the count of records does not fit the size",
    "the offsets are not a range between 0 and 2^63 - 2",
    "the offsets are outside of the segment, or not above those of the batch before",
)
"""The base offset is not covered by the checksum, so a damaged one may be any number."""

# Columns of the digests (int64).
KEY_HIGH: Final = 0
KEY_LOW: Final = 1
OFFSET: Final = 2
CONTENT: Final = 3
DIGEST_WIDTH: Final = 4

TOMBSTONE: Final = 0
"""The CONTENT of a record without a value."""

RECORD_FINDINGS: Final = (
    "",
    "the batch ends inside a record",
    "a record's length does not fit its fields",
    "a field's length is out of range",
    "bytes follow the last record",
    "a header has no key",
    "a record's offset is outside its batch",
    "a record's offset is not above that of the record before it",
    "a timestamp is out of range for microseconds",
)
RECORD_ENDS_EARLY: Final = 1
RECORD_WRONG_LENGTH: Final = 2
RECORD_WRONG_FIELD: Final = 3
RECORD_TRAILING: Final = 4
RECORD_NULL_HEADER_KEY: Final = 5
RECORD_WRONG_OFFSET: Final = 6
RECORD_WRONG_ORDER: Final = 7
RECORD_WRONG_TIMESTAMP: Final = 8


def address_of(data: bytes | bytearray | memoryview) -> int:
    """Return the address of a contiguous buffer. The buffer must outlive the use of the address."""
    import numpy as np

    return int(np.frombuffer(data, np.uint8).ctypes.data)
