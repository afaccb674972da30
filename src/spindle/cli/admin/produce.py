"""`spindle produce`: send the lines of standard input to a topic."""

import json
import sys
from collections.abc import Sequence
from typing import Final

import click

from spindle.cli.cluster_command import cluster_command
from spindle.cli.examples import examples
from spindle.cli.tools.line_producer import (
    DEFAULT_BATCH_BYTES,
    DEFAULT_LINGER_MS,
    Batches,
    InputLine,
    send_lines,
)
from spindle.cli.tools.line_reader import LineFormat
from spindle.client.blocking.client import WireClient
from spindle.client.blocking.producer import BlockingProducer
from spindle.client.errors import ClientError
from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicPartition
from spindle.config.resources import ConfigResourceType
from spindle.protocol.records.compression import CODEC_NAMES

_ACKS: Final = {"all": -1, "1": 1, "0": 0}
_CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
_LIMIT: Final = "max.message.bytes"


@click.command(
    "produce",
    epilog=examples(
        "seq 9 | spindle produce numbers",
        "echo key:value | spindle produce events --key-separator :",
        "spindle produce events --compression zstd < lines.json",
    ),
)
@click.argument("topic")
@click.option(
    "-k", "--key-separator", metavar="TEXT", help="Split a line at the first TEXT: key, then value."
)
@click.option(
    "--headers",
    is_flag=True,
    help="A line begins with its headers: name:value,name:value and a tab.",
)
@click.option("--null", "null_text", metavar="TEXT", help="A key or value that is TEXT is null.")
@click.option(
    "--compression",
    type=click.Choice(_CODECS),
    default="none",
    show_default=True,
    help="Compression of batches.",
)
@click.option(
    "--acks",
    type=click.Choice(list(_ACKS)),
    default="all",
    show_default=True,
    help="Replicas that must have a record before it counts as sent: the ISR, the leader, none.",
)
@cluster_command
@click.pass_context
def produce(
    context: click.Context,
    client: WireClient,
    as_json: bool,
    topic: str,
    key_separator: str | None,
    headers: bool,
    null_text: str | None,
    compression: str,
    acks: str,
) -> None:
    """Send each line of standard input as a record.

    The exit code is 1 if records were refused.
    """
    line_format = LineFormat(
        parse_key=key_separator is not None,
        key_separator=key_separator or "",
        parse_headers=headers,
        null_marker=null_text,
    )
    refused = 0

    def on_refused(where: TopicPartition, lines: Sequence[InputLine], error: ApiError) -> None:
        nonlocal refused
        refused += len(lines)
        click.echo(f"{where}: {refusal(client, where, lines, error)}", err=True)

    is_new = client.metadata([topic]).refused.get(topic) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    partitions = len(client.wait_for_topic(topic).partitions)
    if is_new:
        noun = "partition" if partitions == 1 else "partitions"
        click.echo(f"{topic} did not exist: created with {partitions} {noun}", err=True)
    producer = BlockingProducer(client, acks=_ACKS[acks], codec=CODEC_NAMES[compression])
    batches = Batches(producer, topic, partitions, DEFAULT_BATCH_BYTES, on_refused)
    try:
        send_lines(batches, line_format, DEFAULT_LINGER_MS)
    finally:
        if as_json:
            click.echo(json.dumps({"topic": topic, "sent": batches.sent, "refused": refused}))
        else:
            noun = "record" if batches.sent == 1 else "records"
            # The prompt stands in this line of a terminal.
            begin = "\n" if sys.stdin.isatty() else ""
            click.echo(f"{begin}sent {batches.sent} {noun} to {topic}", err=True)
    if refused:
        context.exit(1)


def refusal(
    client: WireClient, where: TopicPartition, lines: Sequence[InputLine], error: ApiError
) -> str:
    """Return why lines were refused, with their numbers, and the size and limit of one."""
    first, last = lines[0], lines[-1]
    if error.code is ErrorCode.MESSAGE_TOO_LARGE and len(lines) == 1:
        size_bytes = len(first.record.key or b"") + len(first.record.value or b"")
        return (
            f"line {first.number} was refused: its record has {size_bytes:,} bytes; "
            f"{_limit_text(client, where.topic)}"
        )
    named = f"line {first.number} was"
    if len(lines) > 1:
        named = f"{len(lines)} records of the lines {first.number} to {last.number} were"
    return f"{named} refused: {error}"


def _limit_text(client: WireClient, topic: str) -> str:
    try:
        keys = client.describe_configs(ConfigResourceType.TOPIC, [topic], [_LIMIT])[topic]
        limit_bytes = int(keys[_LIMIT] or "")
    except (ApiError, ClientError, KeyError, ValueError):
        return f"more than {_LIMIT} of the topic allows"
    return f"{_LIMIT} of the topic is {limit_bytes:,}, which includes the overhead of a batch"
