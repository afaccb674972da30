"""The tables that the walk over batch headers fills: their rows, one column for each batch."""

from typing import Final

# Rows of the header table (int64): one for each field, a column for each batch.
POSITION: Final = 0
SIZE_BYTES: Final = 1
BASE_OFFSET: Final = 2
LEADER_EPOCH: Final = 3
CRC: Final = 4
ATTRIBUTES: Final = 5
LAST_DELTA: Final = 6
BASE_TIMESTAMP: Final = 7
MAX_TIMESTAMP: Final = 8
PRODUCER_ID: Final = 9
PRODUCER_EPOCH: Final = 10
BASE_SEQUENCE: Final = 11
RECORD_COUNT: Final = 12
COMPUTED_CRC: Final = 13
FIELD_COUNT: Final = 14

# Rows of the table of records (int64); a column for each batch.
RECORDS_STATUS: Final = 0
RECORDS_BYTE: Final = 1
RECORDS_WIDTH: Final = 2

RECORDS_ARE_PACKED: Final = -1
"""The RECORDS_STATUS of a batch that must be decompressed first; others index `RECORD_FINDINGS`."""
