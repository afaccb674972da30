"""`kafka-delete-records`: move the start of partitions forward."""

import json
from typing import Final

import click

from spindle.cli.tools.bootstrap import connect_as
from spindle.cli.tools.command import ToolCommand
from spindle.cli.tools.failures import ToolFailed
from spindle.cli.tools.json_file import (
    COMMAND,
    entries,
    parse_document,
    partition_of,
    read_file,
    whole_number,
)
from spindle.cli.tools.options import (
    BOOTSTRAP_SERVER,
    COMMAND_CONFIG,
    JSON,
    Declaration,
    Option,
    Options,
)
from spindle.client.admin.records import delete_records as delete
from spindle.client.admin.refusals import exception_text
from spindle.common.errors import ApiError
from spindle.common.ids import TopicPartition
from spindle.common.java_text import in_map_order, partition_hash

DECLARATION: Final = Declaration(
    "Delete the records of partitions before given offsets.",
    [
        BOOTSTRAP_SERVER,
        COMMAND_CONFIG,
        JSON,
        Option(
            "offset-json-file",
            'The first offsets to keep: {"partitions": [{"topic": "t", "partition": 0, '
            '"offset": 9}], "version": 1}.',
            "file",
        ),
    ],
    examples=("spindle kafka delete-records --offset-json-file offsets.json",),
)


def _run(options: Options) -> int:
    options.require("bootstrap-server", "offset-json-file")
    with connect_as(options) as client:
        offsets = parse_offsets(read_file(options.text("offset-json-file")))
        if not options.has("json"):
            click.echo("Executing records delete operation")
        outcome = delete(client, offsets)
    if options.has("json"):
        click.echo(json.dumps([_entry(p, number) for p, number in outcome.items()]))
        return 0
    click.echo("Records delete operation completed:")
    for partition in in_map_order(outcome, partition_hash):
        click.echo(outcome_line(partition, outcome[partition]))
    return 0


def outcome_line(partition: TopicPartition, outcome: int | ApiError) -> str:
    """Return the line about one partition: its new start offset, or the error."""
    if isinstance(outcome, ApiError):
        return f"partition: {partition}\terror: {exception_text(outcome)}"
    return f"partition: {partition}\tlow_watermark: {outcome}"


def _entry(partition: TopicPartition, outcome: int | ApiError) -> dict[str, object]:
    refused = isinstance(outcome, ApiError)
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "lowWatermark": None if refused else outcome,
        "error": exception_text(outcome) if isinstance(outcome, ApiError) else None,
    }


def parse_offsets(text: str) -> dict[TopicPartition, int]:
    """Return the offsets that the text of a file lists.

    Raises:
        ToolFailed: the text is of another form, or names a partition twice.
    """
    offsets: dict[TopicPartition, int] = {}
    twice = []
    for entry in entries(parse_document(text), "partitions"):
        partition = partition_of(entry)
        if partition in offsets:
            twice.append(str(partition))
        offsets[partition] = whole_number(entry, "offset")
    if twice:
        names = ",".join(dict.fromkeys(twice))
        raise ToolFailed(f"Offset json file contains duplicate topic partitions: {names}", COMMAND)
    return offsets


delete_records = ToolCommand("delete-records", DECLARATION, _run)
