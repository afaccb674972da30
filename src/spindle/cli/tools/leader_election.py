"""`kafka-leader-election`: elect the preferred replica of partitions, or any replica."""

import json
from typing import Final

import click

from spindle.cli.tools.bootstrap import connect, properties_of
from spindle.cli.tools.command import ToolCommand
from spindle.cli.tools.failures import ToolFailed, WrongOptions
from spindle.cli.tools.json_file import (
    COMMAND,
    OPERATION,
    entries,
    parse_document,
    partition_of,
    read_file,
)
from spindle.cli.tools.options import (
    BOOTSTRAP_SERVER,
    COMMAND_CONFIG,
    JSON,
    Declaration,
    Option,
    Options,
    missing_text,
)
from spindle.client.admin.partitions import ElectionType, elect_leaders
from spindle.client.admin.refusals import exception_text
from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicPartition

_TIMEOUT_MS: Final = 30_000
_TYPES: Final = {kind.name.lower(): kind for kind in ElectionType}
_SCOPES: Final = ("topic", "all-topic-partitions", "path-to-json-file")

DECLARATION: Final = Declaration(
    "Elect leaders of partitions: the preferred replicas, or with unclean any live replica.",
    [
        BOOTSTRAP_SERVER,
        COMMAND_CONFIG,
        JSON,
        Option("admin.config", "Property file of the client; --command-config is newer.", "file"),
        Option("path-to-json-file", 'Partitions: {"partitions": [{"topic": "t", ...}]}.', "file"),
        Option("topic", "The topic of a partition.", "topic"),
        Option("partition", "The number of the partition.", "number"),
        Option("all-topic-partitions", "All partitions."),
        Option("election-type", "preferred, or unclean: any live replica.", "type"),
    ],
    examples=("spindle kafka leader-election --election-type preferred --all-topic-partitions",),
)


def _run(options: Options) -> None:
    _check(options)
    kind = _TYPES.get(options.text("election-type").lower())
    if kind is None:
        raise ToolFailed(
            f"Cannot parse argument '{options.text('election-type')}' of option election-type",
            "joptsimple.OptionArgumentConversionException",
            f"--election-type {options.text('election-type')}: want one of {', '.join(_TYPES)}",
        )
    wanted = _partitions(options)
    properties = properties_of(options.one("command-config") or options.one("admin.config"))
    properties.setdefault("default.api.timeout.ms", str(_TIMEOUT_MS))
    properties.setdefault("request.timeout.ms", str(_TIMEOUT_MS // 2))
    with connect(options.one("bootstrap-server"), properties) as client:
        outcome = elect_leaders(client, kind, wanted)
    if options.has("json"):
        click.echo(json.dumps([_entry(p, error) for p, error in outcome.items()]))
    else:
        for line in outcome_lines(kind, outcome):
            click.echo(line)
    failed = sum(1 for error in outcome.values() if _is_failure(error))
    if failed:
        raise ToolFailed(f"{failed} replica(s) could not be elected", COMMAND)


def _check(options: Options) -> None:
    missing = [name for name in ("bootstrap-server", "election-type") if not options.has(name)]
    if missing:
        text = f"Missing required option(s): {', '.join(missing)}"
        raise WrongOptions(text, COMMAND, missing_text(missing[0]))
    if sum(map(options.has, _SCOPES)) != 1:
        raise ToolFailed(
            f"One and only one of the following options is required: {', '.join(_SCOPES)}", COMMAND
        )
    if options.has("topic") and not options.has("partition"):
        raise ToolFailed("Missing required option(s): partition", COMMAND)
    if options.has("partition") and not options.has("topic"):
        raise ToolFailed("Option partition is only allowed if topic is used", COMMAND)


def _partitions(options: Options) -> list[TopicPartition] | None:
    path = options.one("path-to-json-file")
    if path is not None:
        return parse_partitions(read_file(path))
    if options.has("all-topic-partitions"):
        return None
    return [TopicPartition(options.text("topic"), options.integer("partition") or 0)]


def parse_partitions(text: str) -> list[TopicPartition]:
    """Return the partitions that the text of a file lists.

    Raises:
        ToolFailed: the text is of another form, or names a partition twice.
    """
    document = parse_document(text)
    if "partitions" not in document:
        raise ToolFailed('Replica election data is missing "partitions" field', OPERATION)
    partitions = [partition_of(entry) for entry in entries(document, "partitions")]
    twice = sorted({str(partition) for partition in partitions if partitions.count(partition) > 1})
    if twice:
        raise ToolFailed(
            f"Replica election data contains duplicate partitions: [{', '.join(twice)}]", OPERATION
        )
    return partitions


def outcome_lines(kind: ElectionType, outcome: dict[TopicPartition, ApiError | None]) -> list[str]:
    """Return the lines about the outcome of the election."""
    done = [str(p) for p, error in outcome.items() if error is None]
    idle = [str(p) for p, error in outcome.items() if error and not _is_failure(error)]
    lines = []
    if done:
        names = ", ".join(done)
        lines.append(f"Successfully completed leader election ({kind.name}) for partitions {names}")
    if idle:
        lines.append(f"Valid replica already elected for partitions {', '.join(idle)}")
    lines += [
        f"Error completing leader election ({kind.name}) for partition: {p}: "
        f"{exception_text(error)}"
        for p, error in outcome.items()
        if error is not None and _is_failure(error)
    ]
    return lines


def _is_failure(error: ApiError | None) -> bool:
    return error is not None and error.code is not ErrorCode.ELECTION_NOT_NEEDED


def _entry(partition: TopicPartition, error: ApiError | None) -> dict[str, object]:
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "error": None if error is None else error.code.name,
    }


leader_election = ToolCommand("leader-election", DECLARATION, _run)
