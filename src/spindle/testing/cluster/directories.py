"""Log directories of running brokers, for tests."""

from spindle.client.admin.disks import alter_disks
from spindle.disks.alter_disks import DirectoryAction, DirectoryInUse
from spindle.local.topic_admin import connected


def bring_directory_online(
    bootstrap_servers: str, broker_id: int, path: str, *, accept_loss: bool
) -> bool:
    """Bring a directory back online; return True if it was empty and is formatted now.

    Args:
        accept_loss: replicas that would be lost begin anew.

    Raises:
        ApiError: the broker refused.
        ClientError: the broker could not be asked.
    """
    action = DirectoryAction.ONLINE
    with connected(bootstrap_servers) as client:
        try:
            return alter_disks(client, broker_id, action, path).was_formatted
        except DirectoryInUse as refused:
            if not accept_loss:
                raise
            return alter_disks(client, broker_id, action, path, refused.replicas).was_formatted
