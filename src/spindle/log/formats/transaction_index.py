"""`.txnindex`: the aborted transactions whose markers are in a segment (KIP-98)."""

from struct import Struct
from typing import Final, NamedTuple

from spindle.common.errors import CorruptLog
from spindle.common.ports import Bytes

_ENTRY: Final = Struct(">hqqqq")
TRANSACTION_INDEX_VERSION: Final = 0

ENTRY_BYTES: Final = _ENTRY.size


class AbortedTransaction(NamedTuple):
    """A transaction whose records a read-committed consumer must not see; offsets are inclusive.

    `last_offset` is the offset of its marker; `last_stable_offset` is the log's last stable offset
    after the marker was written.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int

    def overlaps(self, start_offset: int, end_offset: int) -> bool:
        """Return whether it has records, or its marker, in [start_offset, end_offset)."""
        return self.last_offset >= start_offset and self.first_offset < end_offset

    def precedes_none_below(self, end_offset: int) -> bool:
        """Return whether all transactions that end after this one begin at `end_offset` or later.

        The last stable offset that a follower of Kafka wrote may be the start of a transaction
        behind the marker, although the same producer began one before that. So the offset behind
        the marker is the limit.
        """
        return min(self.last_stable_offset, self.last_offset + 1) >= end_offset


def encode_aborted_transaction(transaction: AbortedTransaction) -> bytes:
    """Return the entry of a transaction."""
    return _ENTRY.pack(TRANSACTION_INDEX_VERSION, *transaction)


def decode_aborted_transactions(path: str, data: Bytes) -> list[AbortedTransaction]:
    """Return the whole entries of a file, in its order; ignore an incomplete one at the end.

    Raises:
        CorruptLog: an entry is of another version.
    """
    whole = memoryview(data)[: len(data) - len(data) % ENTRY_BYTES]
    transactions = []
    for number, (version, *fields) in enumerate(_ENTRY.iter_unpack(whole)):
        if version != TRANSACTION_INDEX_VERSION:
            position = number * ENTRY_BYTES
            raise CorruptLog(
                path, position, f"version {version}, expected {TRANSACTION_INDEX_VERSION}"
            )
        transactions.append(AbortedTransaction._make(fields))
    return transactions
