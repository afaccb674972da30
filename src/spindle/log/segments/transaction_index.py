"""`.txnindex`: the aborted transactions that end in a segment (KIP-98)."""

from spindle.log.formats.names import TRANSACTION_INDEX_SUFFIX, offset_name
from spindle.log.formats.transaction_index import (
    ENTRY_BYTES,
    AbortedTransaction,
    decode_aborted_transactions,
    encode_aborted_transaction,
)
from spindle.log.open_files import FileHandles


class TransactionIndex:
    """The transaction index of one segment; most segments have none, and then there is no file."""

    __slots__ = ("_count", "_handles", "_is_dirty", "path")

    def __init__(self, handles: FileHandles, directory: str, base_offset: int, suffix: str) -> None:
        self._handles = handles
        self._count = 0
        self._is_dirty = False
        self.path = f"{directory}/{offset_name(base_offset, TRANSACTION_INDEX_SUFFIX)}{suffix}"

    def use(self, handles: FileHandles) -> None:
        """Use another cache of open files."""
        self._handles = handles

    def open(self, size_bytes: int) -> bool:
        """Load the entries of a file; return False if its size is no multiple of an entry."""
        self._count, rest = divmod(size_bytes, ENTRY_BYTES)
        return rest == 0

    def reset(self) -> None:
        """Drop all entries and the file."""
        if self._handles.file_system.exists(self.path):
            self._handles.release(self.path)
            self._handles.file_system.remove(self.path)
        self._count = 0
        self._is_dirty = False

    @property
    def is_empty(self) -> bool:
        return self._count == 0

    def append(self, transaction: AbortedTransaction) -> None:
        """Add a transaction; they come in order of their last offsets."""
        file = self._handles.get(self.path, create=True)
        file.pwrite(encode_aborted_transaction(transaction), self._count * ENTRY_BYTES)
        self._count += 1
        self._is_dirty = True

    def entries(self) -> list[AbortedTransaction]:
        """Return all transactions in order.

        Raises:
            CorruptLog: an entry is of another version.
        """
        if self._count == 0:
            return []
        data = self._handles.get(self.path).pread(self._count * ENTRY_BYTES, 0)
        return decode_aborted_transactions(self.path, data)

    def truncate_to(self, offset: int) -> None:
        """Drop transactions whose marker is at `offset` or later."""
        kept = [entry for entry in self.entries() if entry.last_offset < offset]
        if len(kept) < self._count:
            self._count = len(kept)
            self._handles.get(self.path).truncate(self._count * ENTRY_BYTES)
            self._is_dirty = True

    def sync(self) -> None:
        """Return when all changes since the last `sync` are on the device."""
        if self._is_dirty:
            self._handles.get(self.path).sync()
            self._is_dirty = False
