"""`.kafka_cleanshutdown`: the mark of a directory whose logs were all closed.

The file holds the broker epoch of that run (KIP-966), by which the controller verifies that the
broker has all records that it acknowledged. Loading removes the file first: a crash after it must
not look like a clean shutdown.
"""

import json
from typing import Final

from spindle.common.ports import FileSystem
from spindle.protocol.sentinels import NO_BROKER_EPOCH

CLEAN_SHUTDOWN_FILE: Final = ".kafka_cleanshutdown"
_VERSION: Final = 0


def write_clean_shutdown(file_system: FileSystem, directory: str, broker_epoch: int) -> None:
    """Write the file; -1 is the epoch of a broker that was never registered."""
    content = f'{{"version":{_VERSION},"brokerEpoch":{broker_epoch}}}'
    file_system.write_atomically(f"{directory}/{CLEAN_SHUTDOWN_FILE}", content.encode())


def read_clean_shutdown(file_system: FileSystem, directory: str) -> int | None:
    """Return the broker epoch in the file, -1 if it holds none, None if there is no file."""
    path = f"{directory}/{CLEAN_SHUTDOWN_FILE}"
    if not file_system.exists(path):
        return None
    try:
        content = json.loads(file_system.read_bytes(path))
    except ValueError:
        # Older brokers leave an empty file: clean, but without an epoch.
        return NO_BROKER_EPOCH
    epoch = content.get("brokerEpoch") if isinstance(content, dict) else None
    return epoch if isinstance(epoch, int) else NO_BROKER_EPOCH


def remove_clean_shutdown(file_system: FileSystem, directory: str) -> bool:
    """Remove the file; return whether there was one.

    The removal is on the device when this returns: if a power failure brought it back, the next
    load would trust files that were not closed.
    """
    path = f"{directory}/{CLEAN_SHUTDOWN_FILE}"
    if not file_system.exists(path):
        return False
    file_system.remove(path)
    file_system.sync_directory(directory)
    return True
