"""`leader-epoch-checkpoint`: which leader epoch began at which offset of a log (KIP-101)."""

import re
from collections.abc import Iterable
from typing import Final

from spindle.common.errors import CorruptLog
from spindle.log.formats.checkpoints import checkpoint_content, checkpoint_lines

_BEGINNING: Final = re.compile(rb"0(?:\n(?:(\d+)(\n(?:\d+ \d+\n)*(?:\d+(?: \d*)?)?)?)?)?")
"""A file or any prefix of it: the count of entries, and the entries."""


def encode_epoch_checkpoint(entries: Iterable[tuple[int, int]]) -> bytes:
    """Return the file with these entries of (epoch, start offset)."""
    return checkpoint_content([f"{epoch} {start}" for epoch, start in entries])


def decode_epoch_checkpoint(path: str, content: bytes) -> list[tuple[int, int]]:
    """Return the (epoch, start offset) entries of a file, in its order.

    A file that a power failure has cut off has no entries. The first entry is on the
    device before the first record is written, and later ones are in the batches, too.

    Raises:
        CorruptLog: the file is malformed.
    """
    # A power failure may leave zeros at the end of a file that was never synced.
    content = content.rstrip(b"\0")
    if not content or _is_torn(content):
        return []
    entries = []
    for line in checkpoint_lines(path, content):
        try:
            epoch, start = map(int, line.split())
        except ValueError as error:
            raise CorruptLog(path, 0, f"malformed line {line!r}") from error
        entries.append((epoch, start))
    return entries


def _is_torn(content: bytes) -> bool:
    match = _BEGINNING.fullmatch(content)
    if match is None:
        return False
    count, entries = match.groups()
    if not entries or not entries.endswith(b"\n"):
        return True
    return entries.count(b"\n") - 1 < int(count)
