"""`spindle consume`: print the records of topics."""

import json
import sys
from collections.abc import Sequence
from typing import Final

import click

from spindle.cli.cluster_command import cluster_command
from spindle.cli.examples import examples
from spindle.cli.parameter_types import FiniteRange, WholeRange
from spindle.cli.tools.consumption import (
    Consumption,
    NoNewRecords,
    StartPosition,
    ending_on_signals,
)
from spindle.cli.tools.record_format import RecordFormat
from spindle.client.blocking.client import WireClient
from spindle.client.blocking.reader import ConsumedRecord
from spindle.common.errors import ErrorCode
from spindle.common.ids import TopicPartition
from spindle.protocol.sentinels import EARLIEST, LATEST, READ_COMMITTED

_MS: Final = 1000
_FIELDS: Final = ("timestamp", "partition", "offset", "epoch", "headers", "key", "value")
_TYPES: Final = {
    "text": "",
    "short": "ShortDeserializer",
    "integer": "IntegerDeserializer",
    "long": "LongDeserializer",
}
_POSITIONS: Final = {"earliest": EARLIEST, "latest": LATEST}


@click.command(
    "consume",
    epilog=examples(
        "spindle consume numbers --from-beginning",
        "spindle consume numbers --group readers -n 10",
        "spindle consume numbers --partition 0 --offset 500 --show offset,key,value",
        "spindle consume numbers --from-beginning --timeout 1 --json | head -3",
    ),
)
@click.argument("topics", nargs=-1, metavar="[TOPIC]...")
@click.option("--include", "pattern", metavar="REGEX", help="All topics that match.")
@click.option("--from-beginning", is_flag=True, help="Begin with the first records.")
@click.option("-p", "--partition", type=WholeRange(min=0), metavar="N", help="Only this partition.")
@click.option(
    "-o", "--offset", metavar="OFFSET", help="With --partition: earliest, latest or an offset."
)
@click.option(
    "-n", "--max-records", "limit", type=WholeRange(min=0), metavar="N", help="End after N records."
)
@click.option(
    "--timeout",
    "timeout_s",
    type=FiniteRange(min=0),
    metavar="S",
    help="End when no record has arrived for S seconds.",
)
@click.option(
    "-g", "--group", "group_id", metavar="NAME", help="Read as a member of a group, and commit."
)
@click.option("--read-committed", is_flag=True, help="Leave out open and aborted transactions.")
@click.option(
    "--show",
    metavar="FIELD,...",
    default="value",
    show_default=True,
    help=f"Fields of a line: {', '.join(_FIELDS)}.",
)
@click.option(
    "--key", "key_type", type=click.Choice(list(_TYPES)), default="text", help="Type of the keys."
)
@click.option(
    "--value",
    "value_type",
    type=click.Choice(list(_TYPES)),
    default="text",
    help="Type of the values.",
)
@cluster_command
def consume(
    client: WireClient,
    as_json: bool,
    topics: Sequence[str],
    pattern: str | None,
    from_beginning: bool,
    partition: int | None,
    offset: str | None,
    limit: int | None,
    timeout_s: float | None,
    group_id: str | None,
    read_committed: bool,
    show: str,
    key_type: str,
    value_type: str,
) -> None:
    """Print the records of topics, from now on or from the beginning, until Ctrl-C.

    With --json, each line is an object; bytes that are not UTF-8 are escaped.
    """
    names = list(dict.fromkeys(topics))
    _check(names, pattern, partition, offset, group_id, from_beginning=from_beginning)
    record_format = _format(show, key_type, value_type)
    start = StartPosition(
        topics=names,
        pattern=pattern,
        partition=None if partition is None else TopicPartition(names[0], partition),
        offset=_offset(offset),
        reset=EARLIEST if from_beginning else LATEST,
    )
    if partition is None:
        _name_missing_topics(client, names, is_member=group_id is not None)
    timeout_ms = None if timeout_s is None else round(timeout_s * _MS)
    level = READ_COMMITTED if read_committed else None
    consumption = Consumption(client, start, group_id, _say, level)
    printed = 0
    with ending_on_signals():
        try:
            for records in consumption.batches(limit, timeout_ms):
                for record in records:
                    line = _json_line(record) if as_json else record_format.line(record)
                    sys.stdout.buffer.write(line)
                    printed += 1
                sys.stdout.flush()
        except NoNewRecords:
            pass
        except KeyboardInterrupt:
            _say(_counted(printed))
            raise
        finally:
            consumption.close()
    _say(_counted(printed))


def _counted(printed: int) -> str:
    return f"{printed} {'record' if printed == 1 else 'records'}"


def _check(
    topics: Sequence[str],
    pattern: str | None,
    partition: int | None,
    offset: str | None,
    group_id: str | None,
    *,
    from_beginning: bool,
) -> None:
    """Refuse options that contradict each other.

    Raises:
        click.UsageError: names them.
    """
    if bool(topics) == (pattern is not None):
        raise click.UsageError("Give topics, or a pattern with --include.")
    if partition is None and offset is not None:
        raise click.UsageError("--offset needs --partition")
    if partition is not None and len(topics) != 1:
        given = " and ".join(topics) if topics else "--include"
        raise click.UsageError(f"--partition takes one topic, got {given}")
    if group_id == "":
        raise click.UsageError("--group is empty")
    if partition is not None and group_id is not None:
        raise click.UsageError("--partition cannot be used with --group")
    if offset is not None and from_beginning:
        raise click.UsageError("--offset cannot be used with --from-beginning")


def _format(show: str, key_type: str, value_type: str) -> RecordFormat:
    fields = [name.strip() for name in show.split(",")]
    for name in fields:
        if name not in _FIELDS:
            raise click.UsageError(f"--show {name}: give some of {', '.join(_FIELDS)}")
    return RecordFormat(
        timestamp="timestamp" in fields,
        partition="partition" in fields,
        offset="offset" in fields,
        epoch="epoch" in fields,
        headers="headers" in fields,
        key="key" in fields,
        value="value" in fields,
        key_type=_TYPES[key_type],
        value_type=_TYPES[value_type],
    )


def _offset(text: str | None) -> int | None:
    if text is None:
        return None
    if text in _POSITIONS:
        return _POSITIONS[text]
    if not text.isdecimal():
        raise click.UsageError(f"--offset {text}: give earliest, latest or an offset")
    return int(text)


def _name_missing_topics(client: WireClient, topics: Sequence[str], *, is_member: bool) -> None:
    """Name the topics that do not exist yet; a member of a group waits for them.

    Others ask for the topic as Kafka's console consumer does, so the brokers may create it.
    """
    outlook = "waiting for it" if is_member else "asking the brokers to create it"
    if not topics:
        return
    view = client.metadata(topics)
    for topic in topics:
        is_denied = view.refused.get(topic) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if topic not in view.topics and not is_denied:
            _say(f"topic {topic} does not exist yet: {outlook}")


def _json_line(record: ConsumedRecord) -> bytes:
    document = {
        "topic": record.partition.topic,
        "partition": record.partition.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": [[name, _text(value)] for name, value in record.headers],
    }
    return json.dumps(document, ensure_ascii=False).encode() + b"\n"


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="backslashreplace")


def _say(sentence: str) -> None:
    click.echo(sentence, err=True)
