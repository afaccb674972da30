"""`kafka-topics`: create, list, describe, extend and delete topics."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import click

from spindle.cli.tools.bootstrap import connect_as
from spindle.cli.tools.command import ToolCommand
from spindle.cli.tools.failures import ToolFailed, UsageError, WrongOptions, executing
from spindle.cli.tools.options import (
    BOOTSTRAP_SERVER,
    COMMAND_CONFIG,
    JSON,
    WHERE_IS_THE_CLUSTER,
    Declaration,
    Option,
    Options,
)
from spindle.cli.tools.topic_filter import is_internal, topic_filter
from spindle.cli.tools.topics_text import DescribedTopic, partition_lines, summary_line, topic_json
from spindle.client.admin import configs
from spindle.client.admin.partitions import Reassignment, list_reassignments
from spindle.client.admin.topics import (
    NewTopic,
    create_partitions,
    create_topic,
    delete_topics,
    describe_topics,
    list_topics,
)
from spindle.client.blocking.client import WireClient
from spindle.client.errors import UnsupportedByPeer
from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicPartition
from spindle.common.uuids import ZERO_UUID, parse_uuid
from spindle.config.resources import ConfigResourceType

_ACTIONS: Final = ("alter", "create", "describe", "list", "delete")
_REPORTS: Final = (
    "under-replicated-partitions",
    "under-min-isr-partitions",
    "at-min-isr-partitions",
    "unavailable-partitions",
)
_MAX_REPLICATION_FACTOR: Final = 32767
_OPERATION: Final = "org.apache.kafka.tools.AdminOperationException"
_COMMAND: Final = "org.apache.kafka.tools.AdminCommandFailedException"
_CONFIGS_HINT: Final = " (To alter topic configurations, the kafka-configs tool can be used.)"

DECLARATION: Final = Declaration(
    "Create, list, describe, change and delete topics.",
    [
        BOOTSTRAP_SERVER,
        COMMAND_CONFIG,
        JSON,
        Option("list", "Show the names of the topics."),
        Option("create", "Create a topic."),
        Option("delete", "Delete topics."),
        Option("alter", "Raise the number of partitions of topics."),
        Option("describe", "Show partitions, leaders and replicas of topics."),
        Option("topic", "Name of a topic; a pattern except with --create.", "topic"),
        Option("topic-id", "Id of a topic to describe.", "id"),
        Option("config", "A setting of the new topic; may be repeated.", "name=value"),
        Option("delete-config", "Has no effect any more.", "name"),
        Option("partitions", "Number of partitions; by default the brokers decide.", "count"),
        Option("replication-factor", "Replicas of each partition.", "count"),
        Option(
            "replica-assignment",
            "Brokers of each partition, the preferred leader first.",
            "id:id:...,id:id:...",
        ),
        Option("under-replicated-partitions", "Only partitions that lack replicas in sync."),
        Option("unavailable-partitions", "Only partitions without a leader."),
        Option("under-min-isr-partitions", "Only partitions that refuse acks=all."),
        Option("at-min-isr-partitions", "Only partitions that can lose no further replica."),
        Option("topics-with-overrides", "Only topics with settings of their own."),
        Option("if-exists", "Do nothing where the topic does not exist."),
        Option("if-not-exists", "Do nothing where the topic exists."),
        Option("exclude-internal", "Leave out the topics of the brokers themselves."),
        Option("partition-size-limit-per-response", "Partitions per request.", "count"),
    ],
    examples=(
        "spindle kafka topics --describe --topic orders",
        "spindle kafka topics --describe --under-replicated-partitions",
    ),
)


def _run(options: Options) -> None:
    options.exactly_one(
        "Command must include exactly one action: "
        "--list, --describe, --create, --alter or --delete",
        *_ACTIONS,
    )
    if options.has("delete-config"):
        click.echo(
            "delete-config option is no longer supported and deprecated since version 4.0. "
            "The config will be fully removed in future releases.",
            err=True,
        )
    _check(options)
    with connect_as(options) as client, executing():
        _act(options, client)


def _check(options: Options) -> None:
    if not options.has("bootstrap-server"):
        raise WrongOptions("--bootstrap-server must be specified", plainly=WHERE_IS_THE_CLUSTER)
    if options.has("describe") and options.has("if-exists"):
        if not options.has("topic") and not options.has("topic-id"):
            raise UsageError("--topic or --topic-id is required to describe a topic")
        if options.has("topic") and options.has("topic-id"):
            click.echo(
                "Only topic id will be used when both --topic and --topic-id are specified and "
                "topicId is not Uuid.ZERO_UUID"
            )
    if not options.has("list") and not options.has("describe"):
        options.require("topic")
    if options.has("alter"):
        if options.has("config"):
            raise UsageError(
                'Option combination "[[config], [bootstrap-server]]" can\'t be used with option '
                f'"[alter]"{_CONFIGS_HINT}',
                "--config cannot be used with --alter; spindle kafka configs changes the settings "
                "of a topic",
            )
        options.require("partitions")
    _only_with(options, "config", "alter", "create")
    _only_with(options, "partitions", "alter", "create")
    _only_with(options, "replication-factor", "create")
    _only_with(options, "replica-assignment", "alter", "create")
    if options.has("create"):
        options.forbid("replica-assignment", "partitions", "replication-factor")
    for report in _REPORTS:
        _only_with(options, report, "describe")
        options.forbid(report, "topics-with-overrides")
    _only_with(options, "topics-with-overrides", "describe")
    _only_with(options, "if-exists", "alter", "delete", "describe")
    _only_with(options, "if-not-exists", "create")
    _only_with(options, "exclude-internal", "list", "describe")


def _only_with(options: Options, name: str, *actions: str) -> None:
    options.forbid(name, *(action for action in _ACTIONS if action not in actions))


def _act(options: Options, client: WireClient) -> None:
    if options.has("create"):
        _create(options, client)
    elif options.has("alter"):
        _alter(options, client)
    elif options.has("list"):
        _list(options, client)
    elif options.has("describe"):
        _describe(options, client)
    else:
        names = _matching(options, client)
        _insist(options, names)
        if names:
            delete_topics(client, names)


def _create(options: Options, client: WireClient) -> None:
    topic = NewTopic(
        name=options.text("topic"),
        partitions=options.integer("partitions"),
        replication_factor=options.integer("replication-factor"),
        assignment=parse_assignment(options.text("replica-assignment")),
        configs=parse_topic_configs(options.all("config")),
    )
    if re.search(r"[._]", topic.name):
        click.echo(
            "WARNING: Due to limitations in metric names, topics with a period ('.') or "
            "underscore ('_') could collide. To avoid issues it is best to use either, "
            "but not both."
        )
    factor = topic.replication_factor
    if factor is not None and not 1 <= factor <= _MAX_REPLICATION_FACTOR:
        raise ToolFailed(
            f"The replication factor must be between 1 and {_MAX_REPLICATION_FACTOR} inclusive"
        )
    if topic.partitions is not None and topic.partitions < 1:
        raise ToolFailed("The partitions must be greater than 0")
    if not topic.name:
        raise ApiError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            "The given topic name '' cannot be represented in a request.",
        )
    try:
        create_topic(client, topic)
    except ApiError as error:
        exists = error.code == ErrorCode.TOPIC_ALREADY_EXISTS
        if exists and options.has("if-not-exists"):
            return
        raise
    click.echo(f"Created topic {topic.name}.")


def _alter(options: Options, client: WireClient) -> None:
    count = options.integer("partitions")
    assignment = parse_assignment(options.text("replica-assignment"))
    names = _matching(options, client)
    _insist(options, names)
    if not names or count is None:
        return
    new: dict[str, Sequence[Sequence[int]]] = {}
    if assignment:
        described, _ = describe_topics(client, names)
        for topic in described:
            new[topic.name] = list(assignment.values())[len(topic.partitions) :]
    create_partitions(client, dict.fromkeys(names, count), new)


def _list(options: Options, client: WireClient) -> None:
    names = _matching(options, client)
    if options.has("json"):
        click.echo(json.dumps(names))
    else:
        click.echo("\n".join(names))


def _describe(options: Options, client: WireClient) -> None:
    names = _names_to_describe(options, client)
    described, _ = describe_topics(
        client, names, page_size=options.integer("partition-size-limit-per-response") or 2000
    )
    reports = [name for name in _REPORTS if options.has(name)]
    brokers = frozenset(client.current_view(()).brokers)
    moves = _reassignments(
        client,
        [TopicPartition(t.name, p.partition) for t in described for p in t.partitions],
    )
    documents = []
    for topic in described:
        try:
            entries = configs.describe(client, ConfigResourceType.TOPIC, topic.name)
        except ApiError as error:
            # The topic was deleted between the two requests.
            if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue
            raise
        shown = DescribedTopic(topic, entries, moves, brokers)
        if options.has("json"):
            documents.append(topic_json(shown, reports))
            continue
        if not reports and (shown.overrides or not options.has("topics-with-overrides")):
            click.echo(summary_line(shown))
        if not options.has("topics-with-overrides"):
            for line in partition_lines(shown, reports):
                click.echo(line)
    if options.has("json"):
        click.echo(json.dumps(documents))


def _names_to_describe(options: Options, client: WireClient) -> list[str]:
    text = options.one("topic-id")
    topic_id = ZERO_UUID if text is None else _parse_id(text)
    if topic_id == ZERO_UUID:
        names = _matching(options, client)
        _insist(options, names)
        return names
    names = [name for name, topic in list_topics(client).items() if topic.topic_id == topic_id]
    if not names and not options.has("if-exists"):
        raise ToolFailed(
            f"TopicId '{text}' does not exist as expected", plainly=f"no topic has the id {text}"
        )
    return names


def _parse_id(text: str) -> bytes:
    try:
        return parse_uuid(text)
    except ValueError as error:
        raise ToolFailed(f"--topic-id: {error}") from None


def _reassignments(
    client: WireClient, partitions: Sequence[TopicPartition]
) -> Mapping[TopicPartition, Reassignment]:
    try:
        return list_reassignments(client, partitions) if partitions else {}
    except UnsupportedByPeer:
        return {}
    except ApiError as error:
        if error.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            return {}
        raise


def _matching(options: Options, client: WireClient) -> list[str]:
    text = options.one("topic")
    names: Iterable[str] = list_topics(client)
    if text is not None:
        is_meant = topic_filter(text)
        names = [name for name in names if is_meant(name)]
    hide = options.has("exclude-internal")
    return [name for name in names if not (hide and is_internal(name))]


def _insist(options: Options, names: Sequence[str]) -> None:
    text = options.one("topic")
    if text and not names and not options.has("if-exists"):
        raise ToolFailed(
            f"Topic '{text}' does not exist as expected", plainly=f"there is no topic {text!r}"
        )


def parse_assignment(text: str) -> dict[int, list[int]]:
    """Return the brokers by partition, from a text such as `1:2,2:1`.

    Raises:
        ToolFailed: a broker twice, different numbers of replicas, or no numbers.
    """
    assignment: dict[int, list[int]] = {}
    for partition, part in enumerate(text.split(",") if text else []):
        try:
            brokers = [int(broker) for broker in part.split(":")]
        except ValueError:
            raise ToolFailed(
                f"--replica-assignment {text}: {part!r} is not a list of broker ids",
                "java.lang.NumberFormatException",
            ) from None
        twice = sorted({broker for broker in brokers if brokers.count(broker) > 1})
        if twice:
            raise ToolFailed(
                "Partition replica lists may not contain duplicate entries: "
                + ",".join(map(str, twice)),
                _COMMAND,
            )
        assignment[partition] = brokers
        if len(brokers) != len(assignment[0]):
            raise ToolFailed(
                f"Partition {partition} has different replication factor: {brokers}", _OPERATION
            )
    return assignment


def parse_topic_configs(texts: Sequence[str]) -> dict[str, str]:
    """Return the settings of `name=value` texts.

    Raises:
        ToolFailed: one is not of that form.
    """
    pairs = [re.split(r"\s*=\s*", text) for text in texts]
    if any(len(pair) != 2 for pair in pairs):
        raise ToolFailed(
            "requirement failed: Invalid topic config: all configs to be added must be in the "
            'format "key=val".',
            plainly=f"--config {', '.join(texts)}: a setting has the form name=value",
        )
    return {key.strip(): value.strip() for key, value in pairs}


topics = ToolCommand("topics", DECLARATION, _run)
