"""`kafka-console-producer`: send the lines of standard input."""

import os
import select
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import click

from spindle.cli.tools.bootstrap import connect, properties_of
from spindle.cli.tools.command import ToolCommand
from spindle.cli.tools.failures import UsageError, WrongOptions, failure
from spindle.cli.tools.kafka_log import log_line
from spindle.cli.tools.line_reader import LineFormat, key_values
from spindle.cli.tools.options import (
    BOOTSTRAP_SERVER,
    COMMAND_CONFIG,
    Declaration,
    Option,
    Options,
)
from spindle.client.blocking.client import WireClient
from spindle.client.blocking.producer import BlockingProducer
from spindle.client.errors import ClientError
from spindle.client.partitioning import partition_of_key
from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicPartition
from spindle.config.resources import ConfigResourceType
from spindle.protocol.records.builder import SimpleRecord
from spindle.protocol.records.compression import CODEC_NAMES

_BATCH_BYTES: Final = 16 * 1024
_LIMIT: Final = "max.message.bytes"
_LINGER_MS: Final = 1000
_MS: Final = 1000
_READ_BYTES: Final = 64 * 1024
_ACKS: Final = {"all": -1, "-1": -1, "1": 1, "0": 0}
_CALLBACK: Final = "org.apache.kafka.clients.producer.internals.ErrorLoggingCallback"
_KNOWN_READER: Final = "org.apache.kafka.tools.LineMessageReader"

DECLARATION: Final = Declaration(
    "Send each line of standard input as a record.",
    [
        BOOTSTRAP_SERVER,
        COMMAND_CONFIG,
        Option("topic", "The topic.", "topic"),
        Option("sync", "Send every line at once and wait for the answer."),
        Option(
            "compression-codec",
            "none, gzip (without a value), snappy, lz4 or zstd.",
            "codec",
            may_lack_value=True,
        ),
        Option("batch-size", "Bytes of a partition to gather before sending.", "bytes"),
        Option("max-partition-memory-bytes", "The same as --batch-size.", "bytes"),
        Option("timeout", "How long a line may wait for others, 1000 by default.", "ms"),
        Option("request-required-acks", "all (or -1, the default), 1 or 0.", "acks"),
        Option("request-timeout-ms", "How long to wait for an answer.", "ms"),
        Option("message-send-max-retries", "Accepted; retries end with the API timeout.", "count"),
        Option("retry-backoff-ms", "First pause before a retry.", "ms"),
        Option("metadata-expiry-ms", "Accepted; metadata is refreshed on errors.", "ms"),
        Option("max-block-ms", "How long to try in all, 60000 by default.", "ms"),
        Option("max-memory-bytes", "Accepted; little is held back.", "bytes"),
        Option("socket-buffer-size", "Accepted; the system's size is used.", "bytes"),
        Option("line-reader", f"Only {_KNOWN_READER}.", "class"),
        Option(
            "property",
            "Of the line format: parse.key, key.separator, parse.headers, headers.delimiter, "
            "headers.separator, headers.key.separator, ignore.error, null.marker.",
            "key=value",
        ),
        Option("reader-property", "The same as --property.", "key=value"),
        Option("reader-config", "Property file of the line format.", "file"),
        Option("producer-property", "A property of the client.", "key=value"),
        Option("command-property", "The same as --producer-property.", "key=value"),
        Option("producer.config", "Property file of the client.", "file"),
    ],
    words="TOPIC",
    examples=(
        "seq 9 | spindle kafka console-producer numbers",
        "spindle kafka console-producer events <lines.json",
        "echo key:value | spindle kafka console-producer events --property parse.key=true "
        "--property key.separator=:",
    ),
)


class InputLine(NamedTuple):
    """A record, and the number of its line."""

    number: int
    record: SimpleRecord


class Batches:
    """Gathers records by partition and sends a partition's when there are enough.

    A batch that is too large is sent again in halves, so that only a record which is too large by
    itself is refused.

    Args:
        limit_bytes: sizes of keys and values that make a batch; 0 sends every record alone.
        on_refused: called with the partition and the lines of a refused batch; the next batch is
            sent all the same.

    Attributes:
        sent: number of records that the brokers have taken.
    """

    def __init__(
        self,
        producer: BlockingProducer,
        topic: str,
        partitions: int,
        limit_bytes: int,
        on_refused: Callable[[TopicPartition, Sequence[InputLine], ApiError], None],
    ) -> None:
        self._on_refused = on_refused
        self._producer = producer
        self._topic = topic
        self._partitions = partitions
        self._limit_bytes = limit_bytes
        self._gathered: dict[int, list[InputLine]] = {}
        self._size_bytes: dict[int, int] = {}
        self._sticky = 0
        self.sent = 0

    def add(self, line: InputLine) -> None:
        """Take a record, and send its batch if it is full."""
        record = line.record
        partition = self._partition_of(record)
        self._gathered.setdefault(partition, []).append(line)
        size_bytes = len(record.key or b"") + len(record.value or b"")
        self._size_bytes[partition] = self._size_bytes.get(partition, 0) + size_bytes
        if self._size_bytes[partition] >= self._limit_bytes:
            self._send(partition)

    def flush(self) -> None:
        """Send all gathered records."""
        for partition in list(self._gathered):
            self._send(partition)

    def _partition_of(self, record: SimpleRecord) -> int:
        if record.key is None:
            return self._sticky
        return partition_of_key(bytes(record.key), self._partitions)

    def _send(self, partition: int) -> None:
        lines = self._gathered.pop(partition)
        self._size_bytes.pop(partition)
        if partition == self._sticky:
            # Records without a key fill one batch after another, each in the next partition.
            self._sticky = (partition + 1) % self._partitions
        self._send_lines(TopicPartition(self._topic, partition), lines)

    def _send_lines(self, where: TopicPartition, lines: Sequence[InputLine]) -> None:
        try:
            self._producer.send(where, [line.record for line in lines])
        except ApiError as error:
            if error.code is not ErrorCode.MESSAGE_TOO_LARGE or len(lines) == 1:
                self._on_refused(where, lines, error)
                return
            middle = len(lines) // 2
            self._send_lines(where, lines[:middle])
            self._send_lines(where, lines[middle:])
        else:
            self.sent += len(lines)


def _run(options: Options) -> int:
    topic = _topic(options)
    options.require("bootstrap-server")
    reader = options.text("line-reader", _KNOWN_READER)
    if reader != _KNOWN_READER:
        raise WrongOptions(f"--line-reader {reader}: only {_KNOWN_READER} is known here")
    line_format = LineFormat.of(
        properties_of(options.one("reader-config"))
        | key_values([*options.all("property"), *options.all("reader-property")])
    )
    properties = _client_properties(options)
    linger_ms = options.integer("timeout")
    refusals = 0

    def on_refused(where: TopicPartition, lines: Sequence[InputLine], error: ApiError) -> None:
        nonlocal refusals
        refusals += 1
        if not options.is_kafka:
            click.echo(f"{where}: {refusal(client, where, lines, error)}", err=True)
            return
        count = len(lines)
        text = f"Error when sending message to topic {topic} with {count} records with error: "
        log_line("ERROR", text + str(failure(error)), _CALLBACK)

    with connect(
        options.one("bootstrap-server"), properties, client_id="console-producer"
    ) as client:
        producer = BlockingProducer(client, acks=_acks(options, properties), codec=_codec(options))
        is_new = not options.is_kafka and _is_missing(client, topic)
        partitions = len(client.wait_for_topic(topic).partitions)
        if is_new:
            noun = "partition" if partitions == 1 else "partitions"
            click.echo(f"{topic} did not exist: created with {partitions} {noun}", err=True)
        batches = Batches(producer, topic, partitions, _limit_bytes(options), on_refused)
        linger_s = (_LINGER_MS if linger_ms is None else linger_ms) / _MS
        try:
            for number, line in _lines(batches, linger_s):
                record = line_format.record(line, number, time.time_ns() // 1_000_000)
                batches.add(InputLine(number, record))
        finally:
            batches.flush()
            if not options.is_kafka:
                noun = "record" if batches.sent == 1 else "records"
                # The prompt stands in this line of a terminal.
                begin = "\n" if sys.stdin.isatty() else ""
                click.echo(f"{begin}sent {batches.sent} {noun} to {topic}", err=True)
    # Kafka's tool ends with 0 all the same.
    return 1 if refusals and not options.is_kafka else 0


def _topic(options: Options) -> str:
    """Return the topic: the value of `--topic`, or the only word that belongs to no option."""
    if options.is_kafka:
        options.require("topic")
        return options.text("topic")
    names = [*options.all("topic"), *options.loose_words]
    if len(names) != 1:
        listed = ", got " + " and ".join(names) if names else ""
        raise UsageError("", f"Give one topic: spindle produce TOPIC{listed}.")
    return names[0]


def _is_missing(client: WireClient, topic: str) -> bool:
    view = client.metadata([topic])
    return view.refused.get(topic) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


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


def _client_properties(options: Options) -> dict[str, str]:
    properties = properties_of(options.one("command-config") or options.one("producer.config"))
    properties |= key_values([*options.all("producer-property"), *options.all("command-property")])
    for option, key in (
        ("request-timeout-ms", "request.timeout.ms"),
        ("retry-backoff-ms", "retry.backoff.ms"),
        ("max-block-ms", "default.api.timeout.ms"),
    ):
        value = options.integer(option)
        if value is not None:
            properties[key] = str(value)
    return properties


def _acks(options: Options, properties: dict[str, str]) -> int:
    text = options.one("request-required-acks") or properties.get("acks", "all")
    if text not in _ACKS:
        raise WrongOptions(
            f"Invalid value {text} for configuration acks: String must be one of: all, -1, 0, 1",
            "org.apache.kafka.common.config.ConfigException",
        )
    return _ACKS[text]


def _codec(options: Options) -> int:
    if not options.has("compression-codec"):
        return CODEC_NAMES["none"]
    name = options.text("compression-codec", "gzip") or "gzip"
    if name not in CODEC_NAMES:
        raise WrongOptions(f"Unknown compression name: {name}")
    return CODEC_NAMES[name]


def _limit_bytes(options: Options) -> int:
    if options.has("sync"):
        return 0
    for name in ("max-partition-memory-bytes", "batch-size"):
        size_bytes = options.integer(name)
        if size_bytes is not None:
            return size_bytes
    return _BATCH_BYTES


def _lines(batches: Batches, linger_s: float) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines of standard input; send gathered records when the input pauses."""
    descriptor = sys.stdin.fileno()
    is_terminal = sys.stdin.isatty()
    buffered = b""
    number = 0
    while True:
        if is_terminal:
            click.echo(">", nl=False)
        if not select.select([descriptor], [], [], linger_s)[0]:
            batches.flush()
            select.select([descriptor], [], [])
        data = os.read(descriptor, _READ_BYTES)
        *lines, buffered = (buffered + data).split(b"\n")
        if not data and buffered:
            lines, buffered = [buffered], b""
        for line in lines:
            number += 1
            yield number, line.removesuffix(b"\r").decode("utf-8", "surrogateescape")
        if not data:
            return


produce = ToolCommand("console-producer", DECLARATION, _run)
