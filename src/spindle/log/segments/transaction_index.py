"""`.txnindex`: the aborted transactions that end in a segment (KIP-98)."""

from struct import Struct
from typing import Final, NamedTuple

from spindle.common.errors import CorruptLog
from spindle.log.formats.names import TRANSACTION_INDEX_SUFFIX, offset_name
from spindle.log.handles import FileHandles

_ENTRY: Final = Struct(">hqqqq")
_VERSION: Final = 0


class AbortedTransaction(NamedTuple):
    """A transaction whose records a read-committed consumer must not see.

    `last_offset` is that of its marker; `last_stable_offset` is what the log's last stable offset
    became when the marker was written.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """The transaction index of one segment; most segments have none, and then there is no file."""

    __slots__ = ("_count", "_handles", "_is_dirty", "path")

    def __init__(self, handles: FileHandles, directory: str, base_offset: int, suffix: str) -> None:
        self._handles = handles
        self._count = 0
        self._is_dirty = False
        self.path = f"{directory}/{offset_name(base_offset, TRANSACTION_INDEX_SUFFIX)}{suffix}"

    def use(self, handles: FileHandles) -> None:
        """Go on with other open files."""
        self._handles = handles

    def open(self, size_bytes: int) -> bool:
        """Take the entries of an existing file; False if its size fits no whole entries."""
        self._count, rest = divmod(size_bytes, _ENTRY.size)
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
        file.pwrite(_ENTRY.pack(_VERSION, *transaction), self._count * _ENTRY.size)
        self._count += 1
        self._is_dirty = True

    def entries(self) -> list[AbortedTransaction]:
        """All transactions in order.

        Raises:
            CorruptLog: an entry is of another version.
        """
        if self._count == 0:
            return []
        data = self._handles.get(self.path).pread(self._count * _ENTRY.size, 0)
        transactions = []
        for number, (version, *fields) in enumerate(_ENTRY.iter_unpack(data)):
            if version != _VERSION:
                position = number * _ENTRY.size
                raise CorruptLog(self.path, position, f"version {version}, expected {_VERSION}")
            transactions.append(AbortedTransaction._make(fields))
        return transactions

    def truncate_to(self, offset: int) -> None:
        """Drop transactions whose marker is at `offset` or later."""
        kept = [entry for entry in self.entries() if entry.last_offset < offset]
        if len(kept) < self._count:
            self._count = len(kept)
            self._handles.get(self.path).truncate(self._count * _ENTRY.size)
            self._is_dirty = True

    def sync(self) -> None:
        """Return when all changes since the last `sync` are on the device."""
        if self._is_dirty:
            self._handles.get(self.path).sync()
            self._is_dirty = False
