"""Log directories of running brokers, for tests."""

from spindle.client.admin.disks import alter_disks
from spindle.disks.alteration import DirectoryAction
from spindle.testing.cluster.topics import connected


def readmit_directory(bootstrap_servers: str, broker_id: int, path: str) -> bool:
    """Re-admit a directory that is offline; return True if it was empty and is formatted now.

    Raises:
        ApiError: the broker refused.
        ClientError: the broker could not be asked.
    """
    with connected(bootstrap_servers) as client:
        return alter_disks(client, broker_id, DirectoryAction.READMIT, path).was_formatted
