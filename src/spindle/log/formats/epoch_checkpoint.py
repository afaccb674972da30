"""`leader-epoch-checkpoint`: which leader epoch began at which offset of a log (KIP-101)."""

from collections.abc import Iterable
from typing import Final

from spindle.common.errors import CorruptLog
from spindle.log.formats.checkpoints import checkpoint_content, checkpoint_lines

_BEFORE_FIRST_ENTRY: Final = b"0\n1\n"
_LINES_OF_ONE_ENTRY: Final = 3


def encode_epoch_checkpoint(entries: Iterable[tuple[int, int]]) -> bytes:
    """Return the file with these entries of (epoch, start offset)."""
    return checkpoint_content([f"{epoch} {start}" for epoch, start in entries])


def decode_epoch_checkpoint(path: str, content: bytes) -> list[tuple[int, int]]:
    """Return the (epoch, start offset) entries of a file, in its order.

    A file that a power failure cut before its first entry was complete has none: the first entry is
    on the device before the first record is written.

    Raises:
        CorruptLog: the file is malformed.
    """
    # Zeros are what a power failure may leave of a file that was never brought to the device.
    if not content.strip(b"\0") or _is_torn_first_entry(content):
        return []
    entries = []
    for line in checkpoint_lines(path, content):
        try:
            epoch, start = map(int, line.split())
        except ValueError as error:
            raise CorruptLog(path, 0, f"malformed line {line!r}") from error
        entries.append((epoch, start))
    return entries


def _is_torn_first_entry(content: bytes) -> bool:
    if _BEFORE_FIRST_ENTRY.startswith(content):
        return True
    return content.startswith(_BEFORE_FIRST_ENTRY) and content.count(b"\n") < _LINES_OF_ONE_ENTRY
