"""`kafka-console-producer`: send the lines of standard input."""

from collections.abc import Sequence
from typing import Final

from spindle.cli.tools.bootstrap import connect, properties_of
from spindle.cli.tools.command import ToolCommand
from spindle.cli.tools.failures import UsageError, WrongOptions, failure
from spindle.cli.tools.kafka_log import log_line
from spindle.cli.tools.line_producer import (
    DEFAULT_BATCH_BYTES,
    DEFAULT_LINGER_MS,
    Batches,
    InputLine,
    send_lines,
)
from spindle.cli.tools.line_reader import LineFormat, key_values
from spindle.cli.tools.options import (
    BOOTSTRAP_SERVER,
    COMMAND_CONFIG,
    Declaration,
    Option,
    Options,
)
from spindle.client.blocking.producer import BlockingProducer
from spindle.common.errors import ApiError
from spindle.common.ids import TopicPartition
from spindle.protocol.records.compression import CODEC_NAMES

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

    def on_refused(where: TopicPartition, lines: Sequence[InputLine], error: ApiError) -> None:
        count = len(lines)
        text = f"Error when sending message to topic {topic} with {count} records with error: "
        log_line("ERROR", text + str(failure(error)), _CALLBACK)

    with connect(
        options.one("bootstrap-server"), properties, client_id="console-producer"
    ) as client:
        producer = BlockingProducer(client, acks=_acks(options, properties), codec=_codec(options))
        partitions = len(client.wait_for_topic(topic).partitions)
        batches = Batches(producer, topic, partitions, _limit_bytes(options), on_refused)
        send_lines(batches, line_format, DEFAULT_LINGER_MS if linger_ms is None else linger_ms)
    # Kafka's tool ends with 0 even if records were refused.
    return 0


def _topic(options: Options) -> str:
    """Return the topic: the value of `--topic`, or the only word that belongs to no option."""
    names = [*options.all("topic"), *options.loose_words]
    if options.loose_words and len(names) > 1:
        raise UsageError("", f"Give one topic, got {' and '.join(names)}.")
    if not names:
        options.require("topic")
    return names[0] if options.loose_words else options.text("topic")


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
    return DEFAULT_BATCH_BYTES


produce = ToolCommand("console-producer", DECLARATION, _run)
