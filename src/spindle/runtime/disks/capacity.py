"""Capacity and free bytes of the log directories (KIP-827), also while a disk hangs."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from spindle.common.errors import LogDirectoryFailed
from spindle.disks.log_directory import LogDirectory

_WAIT_S: Final = 0.5


class DirectoryCapacities:
    """The latest known (total, usable) bytes of each directory.

    Each directory reports on its own thread. A disk that hangs must not delay the metrics, because
    they show that it hangs. So its last report is kept, and no other is requested meanwhile.

    Args:
        wait_s: how long to wait for the reports.
    """

    def __init__(self, wait_s: float = _WAIT_S) -> None:
        self._wait_s = wait_s
        self._known: dict[str, tuple[int, int]] = {}
        self._asked: dict[str, asyncio.Future[tuple[int, int]]] = {}

    async def ask(self, directories: Sequence[LogDirectory]) -> Mapping[str, tuple[int, int]]:
        """Query all online directories; return the known values by path.

        An offline directory is left out.
        """
        for directory in directories:
            if directory.is_offline:
                self._known.pop(directory.path, None)
            elif directory.path not in self._asked:
                self._asked[directory.path] = asyncio.ensure_future(
                    directory.executor.submit(directory.store.capacity)
                )
        if self._asked:
            await asyncio.wait(self._asked.values(), timeout=self._wait_s)
        for path, answer in list(self._asked.items()):
            if answer.done():
                del self._asked[path]
                self._note(path, answer)
        return dict(self._known)

    def _note(self, path: str, answer: asyncio.Future[tuple[int, int]]) -> None:
        try:
            self._known[path] = answer.result()
        except LogDirectoryFailed:
            self._known.pop(path, None)
