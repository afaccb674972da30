"""Copied ranges of a running copy: each is synced and read back while copying continues.

This keeps the final comparison short and bounds unsynced data.
"""

import asyncio
from collections import deque
from typing import Final

from spindle.disks.copied_range import COPIED_RANGE_BYTES, CopiedRange, read_back
from spindle.replicas.moves.move import Move

MIN_BYTES: Final = 1024 * 1024
"""A shorter range is not synced: comparing both logs there is cheaper."""

_MAX_UNSYNCED: Final = 2


class UnverifiedRanges:
    """The records that were copied in this run and not compared yet, in their order."""

    def __init__(self, move: Move) -> None:
        self._move = move
        self._open: CopiedRange | None = None
        self._closed: deque[tuple[CopiedRange, asyncio.Future[int | None]]] = deque()

    @property
    def open_crc(self) -> int:
        """The checksum of the open range; the checksum of the next records continues it."""
        return 0 if self._open is None else self._open.crc

    async def add(self, written: CopiedRange) -> None:
        """Add records, whose `crc` continues `open_crc`; wait while too many bytes are unsynced."""
        self._open = written if self._open is None else self._open.extended(written)
        if self._open.size_bytes >= COPIED_RANGE_BYTES:
            self._close()
            if len(self._closed) > _MAX_UNSYNCED:
                await self._closed[-1 - _MAX_UNSYNCED][1]

    def _close(self) -> None:
        assert self._open is not None, "there is nothing to read back"
        copied, self._open = self._open, None
        target = self._move.target
        verification = asyncio.ensure_future(
            target.executor.submit_beside(read_back, target.store.storage.file_system, copied)
        )
        verification.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._closed.append((copied, verification))

    def clear(self) -> None:
        """Forget everything."""
        self._open = None
        self._closed.clear()

    def truncated_to(self, offset: int) -> None:
        """Drop the ranges with records at or after this offset."""
        while self._closed and self._closed[-1][0].end_offset > offset:
            self._closed.pop()
        if self._open is not None and self._open.end_offset > offset:
            self._open = None

    def first_from(self, offset: int) -> CopiedRange | None:
        """Drop the ranges that end at or below this offset; return the next one, if any."""
        while self._closed and self._closed[0][0].end_offset <= offset:
            self._closed.popleft()
        if not self._closed and self._open is not None:
            if self._open.end_offset > offset and self._open.size_bytes >= MIN_BYTES:
                self._close()
            else:
                self._open = None
        return self._closed[0][0] if self._closed else None

    async def read_back(self) -> int | None:
        """Read the next range back from the device; return its checksum and drop the range.

        Return None if a file of the range was removed.
        """
        return await self._closed.popleft()[1]
