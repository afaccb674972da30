"""`kafka-get-offsets`: offsets of partitions by position or time."""

import json
import re
from collections.abc import Callable
from typing import Final

import click

from spindle.cli.tools.bootstrap import connect_as
from spindle.cli.tools.command import ToolCommand
from spindle.cli.tools.failures import ToolFailed, UsageError, failure
from spindle.cli.tools.options import (
    BOOTSTRAP_SERVER,
    COMMAND_CONFIG,
    JSON,
    Declaration,
    Option,
    Options,
)
from spindle.cli.tools.topic_filter import is_internal, topic_filter
from spindle.client.blocking.client import WireClient
from spindle.client.offsets import MAX_TIMESTAMP
from spindle.common.errors import ApiError
from spindle.common.ids import TopicPartition
from spindle.protocol.sentinels import EARLIEST, LATEST, NO_OFFSET

_EARLIEST_LOCAL: Final = -4
_LATEST_TIERED: Final = -5
_EARLIEST_PENDING_UPLOAD: Final = -6
_NAMED: Final = {
    "latest": LATEST,
    "earliest": EARLIEST,
    "max-timestamp": MAX_TIMESTAMP,
    "earliest-local": _EARLIEST_LOCAL,
    "latest-tiered": _LATEST_TIERED,
    "earliest-pending-upload": _EARLIEST_PENDING_UPLOAD,
}
_RULE: Final = re.compile(r"([^:,]*)(?::(?:([0-9]*)|(?:([0-9]*)-([0-9]*))))?")
_SERVER: Final = re.compile(r"[^:\s]+:\d+|\[[^\]\s]+\]:\d+")
PartitionFilter = Callable[[TopicPartition], bool]

DECLARATION: Final = Declaration(
    "An interactive shell for getting topic-partition offsets.",
    [
        BOOTSTRAP_SERVER,
        COMMAND_CONFIG,
        JSON,
        Option("topic", "A pattern of topics; all by default.", "topic"),
        Option("partitions", "Partitions of these topics; all by default.", "0,1,..."),
        Option(
            "topic-partitions",
            "Patterns of topics with partitions: t:1, t:0-3 (without 3), t:2-, t:-3, :0.",
            "rules",
        ),
        Option(
            "time",
            "A time in ms; or -1 or latest (the default), -2 or earliest, -3 or max-timestamp, "
            "-4 or earliest-local, -5 or latest-tiered, -6 or earliest-pending-upload.",
            "time",
        ),
        Option("exclude-internal-topics", "Leave out the topics of the brokers themselves."),
    ],
    examples=(
        "spindle kafka get-offsets --topic orders",
        "spindle kafka get-offsets --topic orders --time earliest",
    ),
)


def _run(options: Options) -> int:
    options.require("bootstrap-server")
    servers = options.text("bootstrap-server").split(",")
    if not all(_SERVER.fullmatch(server.strip()) for server in servers):
        raise UsageError("Please provide valid host:port like host1:9091,host2:9092\n")
    if options.has("topic-partitions") and (options.has("topic") or options.has("partitions")):
        raise ToolFailed("--topic-partitions cannot be used with --topic or --partitions")
    time = parse_time(options.text("time", "latest"))
    is_meant = _filter(options)
    with connect_as(options, client_id="GetOffsetShell") as client:
        partitions = _partitions(client, is_meant, options.has("exclude-internal-topics"))
        if not partitions:
            raise ToolFailed(
                "Could not match any topic-partitions with the specified filters",
                plainly=_no_match(options),
            )
        offsets = _offsets(client, partitions, time)
    if options.has("json"):
        document = [
            {"topic": topic, "partition": number, "offset": offset}
            for (topic, number), offset in offsets.items()
        ]
        click.echo(json.dumps(document))
    else:
        for (topic, number), offset in offsets.items():
            click.echo(f"{topic}:{number}:{offset}")
    return 0


def _filter(options: Options) -> PartitionFilter:
    if options.has("topic-partitions"):
        return parse_rules(options.text("topic-partitions"))
    is_meant = topic_filter(options.text("topic", ".*"))
    numbers = parse_partition_ids(options.text("partitions"))
    return lambda p: is_meant(p.topic) and (not numbers or p.partition in numbers)


def _no_match(options: Options) -> str:
    filters = ("topic", "partitions", "topic-partitions")
    given = [f"--{name} {options.text(name)}" for name in filters if options.has(name)]
    return f"no partition matches {' '.join(given)}" if given else "there are no topics"


def _partitions(
    client: WireClient, is_meant: PartitionFilter, hide_internal: bool
) -> list[TopicPartition]:
    listed = [
        TopicPartition(name, number)
        for name, topic in client.metadata().topics.items()
        if not (hide_internal and is_internal(name))
        for number in topic.partitions
    ]
    return sorted((entry for entry in listed if is_meant(entry)), key=str)


def _offsets(
    client: WireClient, partitions: list[TopicPartition], time: int
) -> dict[TopicPartition, int]:
    """Return the offsets by partition; report and leave out a partition whose leader refuses."""
    offsets: dict[TopicPartition, int] = {}
    for partition in partitions:
        try:
            offset = client.list_offsets({partition: time})[partition].offset
        except ApiError as error:
            click.echo(
                f"Skip getting offsets for topic-partition {partition} due to error: "
                f"{failure(error)}",
                err=True,
            )
            continue
        if offset != NO_OFFSET:
            offsets[partition] = offset
    return offsets


def parse_time(text: str) -> int:
    """Return a time in ms, or the negative number that stands for a position.

    Raises:
        ToolFailed: the text is neither a number nor the name of a position.
    """
    if text in _NAMED:
        return _NAMED[text]
    try:
        return int(text)
    except ValueError:
        raise ToolFailed(
            f"Malformed time argument {text}. Please use -1 or latest / -2 or earliest / -3 or "
            "max-timestamp / -4 or earliest-local / -5 or latest-tiered / -6 or "
            "earliest-pending-upload, or a specified long format timestamp"
        ) from None


def parse_partition_ids(text: str) -> frozenset[int]:
    """Return the partition numbers of a text such as `0,1`.

    Raises:
        ToolFailed: one is not a number.
    """
    try:
        return frozenset(int(part) for part in text.split(",")) if text else frozenset()
    except ValueError:
        raise ToolFailed(
            "--partitions expects a comma separated list of numeric partition ids, but received: "
            f"{text}"
        ) from None


def parse_rules(text: str) -> PartitionFilter:
    """Return a filter that accepts a partition if one of the rules, separated by commas, matches
    it.

    Raises:
        ToolFailed: a rule is of no known form.
    """
    rules = [_parse_rule(rule) for rule in text.split(",")]
    return lambda partition: any(rule(partition) for rule in rules)


def _parse_rule(rule: str) -> PartitionFilter:
    match = _RULE.fullmatch(rule)
    if match is None:
        raise ToolFailed(
            f"org.apache.kafka.tools.TerseException: Invalid rule specification: {rule}",
            "java.lang.RuntimeException",
        )
    is_meant = topic_filter(match[1] or ".*")
    if match[2]:
        only = int(match[2])
        return lambda p: is_meant(p.topic) and p.partition == only
    first = int(match[3] or 0)
    end = int(match[4]) if match[4] else None
    return lambda p: (
        is_meant(p.topic) and first <= p.partition and (end is None or p.partition < end)
    )


get_offsets = ToolCommand("get-offsets", DECLARATION, _run)
