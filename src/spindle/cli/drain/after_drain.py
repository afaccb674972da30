"""The last step of a drain: the broker uses the directory no longer, or the cluster forgets it."""

import posixpath
import sys
from enum import StrEnum

import click

from spindle.cli.execution.cordons import left_cordon, remove_cordon
from spindle.cli.execution.progress_events import ProgressEvent, Reporter
from spindle.cli.failure import CommandFailed
from spindle.cli.plan.place import parse_place, place_text
from spindle.cli.plan.snapshot import hidden_topics
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
from spindle.protocol.messages.describe_disks import DescribeDisksRequest, DescribeDisksResponse


class AfterDrain(StrEnum):
    """The step."""

    RETIRE = "retire"
    UNREGISTER = "unregister"


def check_taking_out(client: WireClient, then: AfterDrain, place: str, *, is_agreed: bool) -> None:
    """Refuse before the drain what would fail after it; ask where standard input is a terminal.

    Args:
        is_agreed: do not ask.

    Raises:
        click.UsageError: the step does not fit the place.
        CommandFailed: the broker does not run or is not a Spindle broker, or the directory holds
            the metadata log.
        click.Abort: the user does not agree.
    """
    broker_id, path = parse_place(place)
    if (then is AfterDrain.RETIRE) != (path is not None):
        raise click.UsageError("--then retire needs BROKER:DIR, --then unregister needs BROKER")
    if then is AfterDrain.RETIRE:
        try:
            broker = client.metadata(()).broker(str(broker_id))
            client.ask_spindle(broker, DescribeDisksRequest(), DescribeDisksResponse)
        except UnsupportedByPeer:
            raise CommandFailed(
                f"broker {broker_id} is not a Spindle broker, so it cannot retire a directory "
                "while it runs: drain without --then, stop it, and change log.dirs"
            ) from None
        if path == _metadata_log_dir(client, broker_id):
            raise CommandFailed(
                f"{path} holds the metadata log of broker {broker_id}, so it cannot be retired: "
                "drain without --then"
            )
    if not is_agreed and sys.stdin.isatty():
        click.confirm(f"Drain {place_text(place)}, then {then.value} it?", abort=True)


def take_out(client: WireClient, then: AfterDrain, place: str, report: Reporter) -> ProgressEvent:
    """Take an empty place out of use; return the step that says so.

    Raises:
        CommandFailed: the broker still runs, or the place has replicas again.
        ApiError, ClientError: the cluster refused, or could not be asked.
    """
    broker_id, path = parse_place(place)
    if path is not None:
        try:
            alter_disks(client, broker_id, DirectoryAction.RETIRE, path)
        except DirectoryInUse as error:
            raise CommandFailed(f"{error.message}; give the same command again") from None
        # The broker may not know a cordon yet that the drain has set a moment ago.
        problem = remove_cordon(client, broker_id, path)
        if problem is not None and path in cordoned_entries(client, broker_id):
            report(left_cordon(broker_id, path, problem))
        text = f"broker {broker_id} uses {path} no longer: remove it from log.dirs, too"
        return ProgressEvent("retired", text, {"broker": broker_id, "path": path})
    if broker_id in client.metadata(()).brokers:
        raise CommandFailed(
            f"broker {broker_id} has no replicas, but it runs: stop it, and give the same command "
            "again; then the cluster forgets it"
        )
    _refuse_replicas(client, broker_id)
    unregister_broker(client, broker_id)
    text = f"broker {broker_id} is no longer registered"
    return ProgressEvent("unregistered", text, {"broker": broker_id})


def _metadata_log_dir(client: WireClient, broker_id: int) -> str:
    keys = ("metadata.log.dir", "log.dirs", "log.dir")
    configs = describe(client, ConfigResourceType.BROKER, str(broker_id), keys)
    values = {config.name: config.value for config in configs}
    first = next(value for key in keys if (value := values.get(key)))
    return posixpath.normpath(first.split(",")[0].strip())


def _refuse_replicas(client: WireClient, broker_id: int) -> None:
    """Refuse to forget a broker that has replicas: the cluster would do it, and lose them.

    Raises:
        CommandFailed: a topic was created since the drain, and has replicas on the broker; or the
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
        raise CommandFailed(
            f"broker {broker_id} has {count_noun(len(held), 'replica')} again, such as {held[0]}: "
            "give the same command again"
        )
    hidden = hidden_topics(view, client.describe_log_dirs())
    if hidden:
        raise CommandFailed(
            f"the metadata does not show {count_noun(len(hidden), 'topic')} that brokers hold, "
            "such "
            f"as {hidden[0]}, which may have replicas on broker {broker_id}: run this "
            "as a user with DESCRIBE on all topics, or again later if the topics were just deleted"
        )
