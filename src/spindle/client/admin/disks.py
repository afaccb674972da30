"""AlterDisks: log directories of a running broker are added, brought back online and removed."""

from collections.abc import Iterable
from typing import Final

from spindle.client.admin.refusals import optional_error
from spindle.client.blocking.client import WireClient
from spindle.common.ids import TopicPartition
from spindle.disks.alter_disks import (
    AlteredDirectory,
    DirectoryAction,
    DirectoryInUse,
    ReplicaState,
)
from spindle.protocol.messages.alter_disks import AlterDisksRequest, AlterDisksResponse

_WAIT_MS: Final = 600_000
"""Time for the broker to load the logs that a directory has."""


def alter_disks(
    client: WireClient,
    broker_id: int,
    action: DirectoryAction,
    path: str,
    accepted_losses: Iterable[TopicPartition] = (),
) -> AlteredDirectory:
    """Change the log directories of a broker; return when it has applied the change.

    Args:
        accepted_losses: replicas that may be created empty when the directory is
            brought back online.

    Raises:
        DirectoryInUse: replicas of the directory prevent it: they are in it, or would be lost.
        ApiError: the broker refused; there is no such broker.
        ClientError: the broker could not be asked, or is not a Spindle broker.
    """
    broker = client.metadata(()).broker(str(broker_id))
    losses: dict[str, AlterDisksRequest.AcceptedLoss] = {}
    for topic, index in accepted_losses:
        losses.setdefault(topic, AlterDisksRequest.AcceptedLoss(name=topic)).partitions.append(
            index
        )
    request = AlterDisksRequest(action=action, path=path, accepted_losses=list(losses.values()))
    answer = client.ask_spindle(broker, request, AlterDisksResponse, wait_ms=_WAIT_MS)
    replicas = {
        TopicPartition(topic.name, partition.partition_index): ReplicaState(partition.state)
        for topic in answer.topics
        for partition in topic.partitions
    }
    error = optional_error(answer.error_code, answer.error_message)
    if error is not None:
        raise DirectoryInUse(answer.path, replicas, error.message or "") if replicas else error
    return AlteredDirectory(answer.path, answer.directory_id, answer.was_formatted, replicas)
