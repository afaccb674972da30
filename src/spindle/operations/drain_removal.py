"""The last step of a drain: remove the directory from its broker, or unregister the broker."""

import posixpath
from collections.abc import Sequence
from enum import StrEnum

from spindle.client.admin.cluster import unregister_broker
from spindle.client.admin.configs import describe
from spindle.client.admin.cordons import cordoned_entries
from spindle.client.admin.disks import alter_disks
from spindle.client.blocking.client import WireClient
from spindle.client.errors import UnsupportedByPeer
from spindle.common.ids import TopicPartition
from spindle.common.text import count_noun
from spindle.config.resources import ConfigResourceType
from spindle.disks.alter_disks import DirectoryAction, DirectoryInUse
from spindle.operations.directories import DrainTarget
from spindle.operations.errors import OperationFailed
from spindle.operations.events import DirectoryRemoved, NotUncordoned, OnProgress, Unregistered
from spindle.operations.execution.cordons import remove_cordon
from spindle.operations.snapshot import hidden_topics
from spindle.protocol.messages.describe_disks import DescribeDisksRequest, DescribeDisksResponse


class Removal(StrEnum):
    """How an empty broker or directory is removed."""

    REMOVE = "remove"
    UNREGISTER = "unregister"


def check_removal(client: WireClient, then: Removal, place: DrainTarget) -> None:
    """Check before the drain that the removal can work.

    Raises:
        OperationFailed: the removal does not fit the target; the broker does not run or is not a
            Spindle broker, or the directory holds the metadata log.
    """
    broker_id, path = place
    if (then is Removal.REMOVE) != (path is not None):
        raise OperationFailed("a directory is removed, and a whole broker is unregistered")
    if then is Removal.REMOVE:
        try:
            broker = client.metadata(()).broker(str(broker_id))
            client.ask_spindle(broker, DescribeDisksRequest(), DescribeDisksResponse)
        except UnsupportedByPeer:
            raise OperationFailed(
                f"broker {broker_id} is not a Spindle broker, so it cannot remove a directory "
                "while it runs: drain without `then`, stop it, and change log.dirs"
            ) from None
        if path == _metadata_log_dir(client, broker_id):
            raise OperationFailed(
                f"{path} holds the metadata log of broker {broker_id}, so it cannot be removed: "
                "drain without `then`"
            )


def remove_drained(
    client: WireClient,
    then: Removal,
    place: DrainTarget,
    went_offline: Sequence[str],
    report: OnProgress,
) -> None:
    """Remove an empty broker or directory, and report it.

    Args:
        went_offline: directories that went offline during the drain, as `BROKER:DIR`.

    Raises:
        OperationFailed: the broker still runs, or has replicas again.
        ApiError, ClientError: the cluster refused, or could not be asked.
    """
    broker_id, path = place
    if then is Removal.REMOVE and path is not None:
        try:
            alter_disks(client, broker_id, DirectoryAction.REMOVE, path)
        except DirectoryInUse as error:
            raise OperationFailed(f"{error.message}; make the same call again") from None
        # The broker may not know yet a cordon that the drain has just set.
        problem = remove_cordon(client, broker_id, path)
        if problem is not None and path in cordoned_entries(client, broker_id):
            report(NotUncordoned(broker_id, path, problem))
        report(DirectoryRemoved(list(went_offline), broker_id, path))
        return
    if broker_id in client.metadata(()).brokers:
        raise OperationFailed(
            f"broker {broker_id} has no replicas, but it runs: stop it, and make the same call "
            "again; then it is unregistered"
        )
    _refuse_replicas(client, broker_id)
    unregister_broker(client, broker_id)
    report(Unregistered(list(went_offline), broker_id))


def _metadata_log_dir(client: WireClient, broker_id: int) -> str:
    keys = ("metadata.log.dir", "log.dirs", "log.dir")
    configs = describe(client, ConfigResourceType.BROKER, str(broker_id), keys)
    values = {config.name: config.value for config in configs}
    first = next(value for key in keys if (value := values.get(key)))
    return posixpath.normpath(first.split(",")[0].strip())


def _refuse_replicas(client: WireClient, broker_id: int) -> None:
    """Refuse to unregister a broker that has replicas: the cluster would accept it, and lose them.

    Raises:
        OperationFailed: a topic was created since the drain, and has replicas on the broker; or the
            cluster has topics that the user may not see, which may have some.
    """
    view = client.metadata()
    held = [
        TopicPartition(name, number)
        for name, topic in view.topics.items()
        for number, partition in topic.partitions.items()
        if broker_id in partition.replicas
    ]
    if held:
        raise OperationFailed(
            f"broker {broker_id} has {count_noun(len(held), 'replica')} again, such as {held[0]}: "
            "make the same call again"
        )
    hidden = hidden_topics(view, client.describe_log_dirs())
    if hidden:
        raise OperationFailed(
            f"the metadata does not show {count_noun(len(hidden), 'topic')} that brokers hold, "
            "such "
            f"as {hidden[0]}, which may have replicas on broker {broker_id}: run this "
            "as a user with DESCRIBE on all topics, or again later if the topics were just deleted"
        )
