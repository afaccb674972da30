"""Opens and closes the logs of all directories, each on its own thread, all at the same time."""

import asyncio
import logging
from collections.abc import Callable, Sequence

from spindle.common.errors import LogDirectoryFailed
from spindle.disks.log_directory import LogDirectory
from spindle.log.log import Log
from spindle.log.log_config import LogConfig

log = logging.getLogger(__name__)


async def load_logs(
    directories: Sequence[LogDirectory], config_of: Callable[[str], LogConfig], now_ms: int
) -> list[tuple[LogDirectory, Sequence[Log]]]:
    """Return the current logs of the online directories; none of one that fails meanwhile."""

    async def load(directory: LogDirectory) -> Sequence[Log]:
        try:
            loaded = await directory.executor.submit(directory.store.load, config_of, now_ms)
            return loaded.current
        except LogDirectoryFailed as failure:
            log.error("%s", failure)
            return ()

    online = _online(directories)
    return list(zip(online, await asyncio.gather(*map(load, online)), strict=True))


async def close_logs(directories: Sequence[LogDirectory], broker_epoch: int) -> None:
    """Flush and close the logs; write the clean-shutdown files with this broker epoch."""

    async def close(directory: LogDirectory) -> None:
        try:
            await directory.executor.submit(directory.store.close, broker_epoch)
        except LogDirectoryFailed as failure:
            log.error("%s", failure)

    await asyncio.gather(*map(close, _online(directories)))


def _online(directories: Sequence[LogDirectory]) -> list[LogDirectory]:
    return [directory for directory in directories if not directory.is_offline]
