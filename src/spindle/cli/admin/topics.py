"""`spindle topic`: create, list, describe, change and delete topics."""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from spindle.cli.cluster_command import cluster_command
from spindle.cli.examples import examples
from spindle.cli.failure import CommandFailed
from spindle.cli.parameter_types import PARTITION, WholeRange, parse_key_values
from spindle.cli.suggestions import SuggestingGroup
from spindle.cli.table import table_lines
from spindle.cli.tools.topic_filter import is_internal
from spindle.client.admin import configs
from spindle.client.admin.partitions import ElectionType, elect_leaders
from spindle.client.admin.records import delete_records as delete_records_before
from spindle.client.admin.refusals import refusal_text
from spindle.client.admin.topics import (
    NewTopic,
    TopicDescription,
    create_partitions,
    create_topic,
    delete_topics,
    describe_topics,
    list_topics,
)
from spindle.client.blocking.client import WireClient
from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import NO_LEADER, TopicPartition
from spindle.common.uuids import uuid_text
from spindle.config.resources import ConfigResourceType
from spindle.protocol.sentinels import EARLIEST, LATEST

_NO_SUCH_TOPIC: Final = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.INVALID_TOPIC_EXCEPTION,  # no topic can have such a name
)


@click.group(
    "topic",
    cls=SuggestingGroup,
    epilog=examples("spindle topic create numbers -p 3", "spindle topic describe numbers"),
)
def topic() -> None:
    """Create, list, describe, change and delete topics."""


_partitions = click.option(
    "-p", "--partitions", type=WholeRange(min=1), metavar="N", help="Number of partitions."
)
_configs = click.option(
    "-c", "--config", "settings", multiple=True, metavar="NAME=VALUE", help="A topic setting."
)


@topic.command(
    "create",
    epilog=examples(
        "spindle topic create numbers -p 3 -r 2",
        "spindle topic create events -c retention.ms=86400000 -c cleanup.policy=compact",
    ),
)
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@_partitions
@click.option(
    "-r", "--replicas", type=WholeRange(1, 32767), metavar="N", help="Replicas of a partition."
)
@_configs
@click.option("--if-not-exists", is_flag=True, help="Do nothing if the topic exists.")
@cluster_command
def create(
    client: WireClient,
    as_json: bool,
    names: Sequence[str],
    partitions: int | None,
    replicas: int | None,
    settings: Sequence[str],
    if_not_exists: bool,
) -> None:
    """Create topics.

    The brokers choose the number of partitions and replicas that are not given.
    """
    wanted = parse_key_values("--config", settings)
    created = []
    for name in names:
        try:
            create_topic(client, NewTopic(name, partitions, replicas, configs=wanted))
        except ApiError as error:
            if error.code is ErrorCode.TOPIC_ALREADY_EXISTS and if_not_exists:
                continue
            if error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise _denied(name, "CREATE") from None
            raise
        created.append(name)
        if not as_json:
            click.echo(f"created {name}")
    if as_json:
        click.echo(json.dumps(created))


@topic.command(
    "list",
    epilog=examples("spindle topic list"),
)
@click.option("--internal", is_flag=True, help="Show the brokers' own topics, too.")
@cluster_command
def list_command(client: WireClient, as_json: bool, internal: bool) -> None:
    """List the topics with their numbers of partitions and replicas."""
    rows = [
        (name, len(topic.partitions), max(len(p.replicas) for p in topic.partitions.values()))
        for name, topic in list_topics(client).items()
        if internal or not is_internal(name)
    ]
    if as_json:
        click.echo(json.dumps([dict(zip(_LIST_KEYS, row, strict=True)) for row in rows]))
    elif rows:
        head = ("TOPIC", "PARTITIONS", "REPLICAS")
        click.echo("\n".join(table_lines(head, [tuple(map(str, row)) for row in rows])))
    else:
        click.echo("There are no topics.", err=True)


_LIST_KEYS = ("topic", "partitions", "replicas")


@topic.command("describe", epilog=examples("spindle topic describe numbers"))
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@cluster_command
def describe(client: WireClient, as_json: bool, names: Sequence[str]) -> None:
    """Show the settings and the partitions of topics."""
    described = _described(client, names)
    documents = []
    for number, description in enumerate(described):
        entries = configs.describe(client, ConfigResourceType.TOPIC, description.name)
        own = {
            entry.name: entry.value
            for entry in entries
            if entry.source is configs.ReportedSource.DYNAMIC_TOPIC_CONFIG
        }
        if as_json:
            documents.append(_document(description, own))
            continue
        if number:
            click.echo()
        click.echo("\n".join(describe_lines(description, own)))
    if as_json:
        click.echo(json.dumps(documents))


@topic.command(
    "alter",
    epilog=examples("spindle topic alter orders -p 12"),
)
@click.argument("name")
@_partitions
@_configs
@click.option(
    "-d", "--delete-config", "removed", multiple=True, metavar="NAME", help="A setting to remove."
)
@cluster_command
def alter(
    client: WireClient,
    as_json: bool,
    name: str,
    partitions: int | None,
    settings: Sequence[str],
    removed: Sequence[str],
) -> None:
    """Add partitions to a topic, and set or remove its settings."""
    wanted = parse_key_values("--config", settings)
    if partitions is None and not wanted and not removed:
        raise click.UsageError("Give --partitions, --config or --delete-config.")
    _described(client, [name])
    if partitions is not None:
        create_partitions(client, {name: partitions}, {})
    if wanted or removed:
        configs.alter(client, ConfigResourceType.TOPIC, name, wanted, removed)
    click.echo(json.dumps([name]) if as_json else f"changed {name}")


@topic.command(
    "delete",
    epilog=examples("spindle topic delete orders"),
)
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@cluster_command
def delete(client: WireClient, as_json: bool, names: Sequence[str], yes: bool) -> None:
    """Delete topics with all their records.

    Asks first where standard input is a terminal.
    """
    _described(client, names)
    if not yes and sys.stdin.isatty():
        click.confirm(f"Delete {', '.join(names)} with all records?", abort=True)
    delete_topics(client, list(names))
    if as_json:
        click.echo(json.dumps(list(names)))
    else:
        click.echo("\n".join(f"deleted {name}" for name in names))


@topic.command(
    "offsets",
    epilog=examples("spindle topic offsets numbers"),
)
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@cluster_command
def offsets(client: WireClient, as_json: bool, names: Sequence[str]) -> None:
    """Show the first and the end offset of each partition.

    The end offset is that of the next record. A partition without a leader shows no offsets.
    """
    partitions = [
        TopicPartition(topic.name, p.partition)
        for topic in _described(client, names)
        for p in topic.partitions
        if p.leader != NO_LEADER
    ]
    first = client.list_offsets(dict.fromkeys(partitions, EARLIEST)) if partitions else {}
    end = client.list_offsets(dict.fromkeys(partitions, LATEST)) if partitions else {}
    rows = [(p.topic, p.partition, first[p].offset, end[p].offset) for p in partitions]
    if as_json:
        keys = ("topic", "partition", "first", "end")
        click.echo(json.dumps([dict(zip(keys, row, strict=True)) for row in rows]))
        return
    head = ("TOPIC", "PARTITION", "FIRST", "END")
    click.echo("\n".join(table_lines(head, [tuple(map(str, row)) for row in rows])))


@topic.command(
    "delete-records",
    epilog=examples("spindle topic delete-records orders-0 --before 500"),
)
@click.argument("partition", metavar="TOPIC-PARTITION", type=PARTITION)
@click.option(
    "--before",
    "offset",
    type=WholeRange(min=0),
    required=True,
    metavar="OFFSET",
    help="Delete the records before this offset.",
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@cluster_command
def delete_records(
    client: WireClient, as_json: bool, partition: TopicPartition, offset: int, yes: bool
) -> None:
    """Delete the oldest records of a partition.

    Asks first where standard input is a terminal.
    """
    if not yes and sys.stdin.isatty():
        click.confirm(f"Delete the records of {partition} before offset {offset}?", abort=True)
    outcome = delete_records_before(client, {partition: offset})[partition]
    if isinstance(outcome, ApiError):
        if outcome.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
            raise outcome
        end = client.list_offsets({partition: LATEST})[partition].offset
        raise CommandFailed(f"--before {offset}: {partition} ends at offset {end}")
    document = {"topic": partition.topic, "partition": partition.partition, "first": outcome}
    click.echo(json.dumps(document) if as_json else f"{partition} begins at offset {outcome:d} now")


@topic.command(
    "elect",
    epilog=examples(
        "spindle topic elect orders-0",
        "spindle topic elect --all",
        "spindle topic elect --unclean orders-0",
    ),
)
@click.argument("partitions", nargs=-1, metavar="[TOPIC-PARTITION]...", type=PARTITION)
@click.option("--all", "is_all", is_flag=True, help="All partitions of the cluster.")
@click.option(
    "--unclean",
    is_flag=True,
    help="If no replica of the ISR is alive, elect another one: records can be lost.",
)
@cluster_command
@click.pass_context
def elect(
    context: click.Context,
    client: WireClient,
    as_json: bool,
    partitions: Sequence[TopicPartition],
    is_all: bool,
    unclean: bool,
) -> None:
    """Make the preferred replica of partitions their leader.

    The preferred replica is the first one in the list of replicas. The exit code is 1 if a
    partition could not get the leader.
    """
    if bool(partitions) == is_all:
        raise click.UsageError("Give either partitions, such as orders-0, or --all.")
    kind = ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED
    outcome = elect_leaders(client, kind, None if is_all else partitions)
    failed = False
    documents = []
    for partition, error in outcome.items():
        is_needless = error is not None and error.code is ErrorCode.ELECTION_NOT_NEEDED
        failed = failed or (error is not None and not is_needless)
        result = "elected" if error is None else "unchanged" if is_needless else "failed"
        reason = refusal_text(error) if error is not None and not is_needless else None
        documents.append(
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "result": result,
                "error": reason,
            }
        )
        if not as_json:
            text = f"{partition}: {_ELECTION_TEXTS[result]}"
            click.echo(f"{text}: {reason}" if reason else text, err=reason is not None)
    if as_json:
        click.echo(json.dumps(documents))
    elif not outcome:
        click.echo("Every preferred replica is the leader already.", err=True)
    if failed:
        context.exit(1)


_ELECTION_TEXTS = {
    "elected": "a new leader is elected",
    "unchanged": "the leader stays",
    "failed": "no leader is elected",
}


def describe_lines(described: TopicDescription, own: Mapping[str, str | None]) -> list[str]:
    """Return the lines about one topic.

    Args:
        own: the settings that the topic itself has.
    """
    head = ("PARTITION", "LEADER", "REPLICAS", "IN SYNC", "OFFLINE")
    rows = [
        (
            str(partition.partition),
            "none" if partition.leader == NO_LEADER else str(partition.leader),
            _ids(partition.replicas),
            _ids(partition.isr),
            _ids(partition.offline) or "-",
        )
        for partition in described.partitions
    ]
    settings = " ".join(f"{key}={value}" for key, value in sorted(own.items())) or "none of its own"
    return [
        f"topic     {described.name}",
        f"id        {uuid_text(described.topic_id)}",
        f"settings  {settings}",
        *table_lines(head, rows),
    ]


def _described(client: WireClient, names: Sequence[str]) -> list[TopicDescription]:
    described, refused = describe_topics(client, names)
    for name, error in refused.items():
        if error.code in _NO_SUCH_TOPIC:
            raise CommandFailed(f"there is no topic {name!r}")
        if error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise _denied(name, "DESCRIBE")
        raise error
    return described


def _denied(name: str, operation: str) -> CommandFailed:
    return CommandFailed(f"the user is not authorized for {operation} on topic {name!r}")


def _document(described: TopicDescription, own: Mapping[str, str | None]) -> dict[str, Any]:
    return {
        "topic": described.name,
        "id": uuid_text(described.topic_id),
        "settings": dict(own),
        "partitions": [
            {
                "partition": partition.partition,
                "leader": None if partition.leader == NO_LEADER else partition.leader,
                "replicas": list(partition.replicas),
                "isr": list(partition.isr),
                "offline": list(partition.offline),
            }
            for partition in described.partitions
        ],
    }


def _ids(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers))
