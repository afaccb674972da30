"""Opens and closes the logs of all directories, each on its own thread, all at the same time."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

from spindle.common.errors import CorruptLog, LogDirectoryFailed
from spindle.common.ports import FileSystem
from spindle.disks.directory_store import DirectoryStore, LoadedLogs
from spindle.disks.executor import DirectoryExecutor
from spindle.disks.log_directory import LogDirectory
from spindle.log.formats.clean_shutdown import read_clean_shutdown
from spindle.log.log import Log
from spindle.log.log_config import LogConfig
from spindle.protocol.sentinels import NO_BROKER_EPOCH

log = logging.getLogger(__name__)


def previous_broker_epoch(
    file_system: FileSystem, executors: Mapping[str, DirectoryExecutor]
) -> int:
    """Return the broker epoch of the last run; -1 if a directory was not closed cleanly (KIP-966).

    A directory that cannot be read fails. Call it before `load_logs`, which removes the
    clean-shutdown files.

    Args:
        executors: of all directories in `log.dirs`, by path.
    """
    epochs: list[int | None] = []
    for path, executor in executors.items():
        epoch = None
        if executor.failure is None:
            try:
                epoch = read_clean_shutdown(file_system, path)
            except OSError as error:
                executor.fail(error)
        epochs.append(epoch)
    first = epochs[0]
    if first is None or any(epoch != first for epoch in epochs):
        return NO_BROKER_EPOCH
    return first


async def load_directory(
    executor: DirectoryExecutor,
    store: DirectoryStore,
    config_of: Callable[[str], LogConfig],
    now_ms: int,
) -> LoadedLogs:
    """Load the logs of a directory.

    Raises:
        LogDirectoryFailed: an I/O error, or a malformed file that Spindle itself writes.
    """
    try:
        return await executor.submit(store.load, config_of, now_ms)
    except CorruptLog as damage:
        raise executor.fail(damage) from damage


async def load_logs(
    directories: Sequence[LogDirectory], config_of: Callable[[str], LogConfig], now_ms: int
) -> list[tuple[LogDirectory, Sequence[Log]]]:
    """Return the current logs of the online directories; none of one that fails meanwhile."""

    async def load(directory: LogDirectory) -> Sequence[Log]:
        try:
            loaded = await load_directory(directory.executor, directory.store, config_of, now_ms)
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
