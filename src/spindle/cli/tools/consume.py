"""`kafka-console-consumer`: print records of topics, alone or as a member of a group."""

import sys
from collections.abc import Sequence
from typing import Final

import click

from spindle.cli.tools.bootstrap import connect, properties_of
from spindle.cli.tools.command import ToolCommand
from spindle.cli.tools.consumption import (
    Consumption,
    NoNewRecords,
    StartPosition,
    ending_on_signals,
)
from spindle.cli.tools.failures import UsageError, executing
from spindle.cli.tools.kafka_log import log_line
from spindle.cli.tools.line_reader import key_values
from spindle.cli.tools.options import (
    BOOTSTRAP_SERVER,
    COMMAND_CONFIG,
    Declaration,
    Option,
    Options,
)
from spindle.cli.tools.record_format import DEFAULT_FORMATTER, RecordFormat, check_formatter
from spindle.common.ids import TopicPartition
from spindle.protocol.sentinels import EARLIEST, LATEST

_LOGGER: Final = "org.apache.kafka.tools.consumer.ConsoleConsumer"
_TIMED_OUT: Final = (
    "Error processing message, terminating consumer process: \n"
    "org.apache.kafka.common.errors.TimeoutException"
)
_RESETS: Final = {"earliest": EARLIEST, "latest": LATEST}

DECLARATION: Final = Declaration(
    "Print the records of topics on standard output.",
    [
        BOOTSTRAP_SERVER,
        COMMAND_CONFIG,
        Option("topic", "The topic.", "topic"),
        Option("include", "A pattern of topics.", "regex"),
        Option("partition", "Only this partition.", "number"),
        Option("offset", "Where to begin: an offset, earliest or latest (the default).", "offset"),
        Option("from-beginning", "Begin with the first records where there is no position."),
        Option("max-messages", "End after this many records.", "count"),
        Option("timeout-ms", "End when no record has arrived for this time.", "ms"),
        Option("skip-message-on-error", "Continue after a record that cannot be printed."),
        Option("group", "Read as a member of this group, which keeps the positions.", "group"),
        Option("isolation-level", "read_committed or read_uncommitted (the default).", "level"),
        Option("formatter", "Class of the formatter.", "class"),
        Option("formatter-config", "Property file of the formatter.", "file"),
        Option(
            "property",
            "Of the formatter: print.timestamp, print.key, print.offset, print.epoch, "
            "print.partition, print.headers, print.value, key.separator, line.separator, "
            "headers.separator, null.literal.",
            "key=value",
        ),
        Option("formatter-property", "The same as --property.", "key=value"),
        Option("key-deserializer", "Class of the key's deserializer.", "class"),
        Option("value-deserializer", "Class of the value's deserializer.", "class"),
        Option("consumer-property", "A property of the client.", "key=value"),
        Option("command-property", "The same as --consumer-property.", "key=value"),
        Option("consumer.config", "Property file of the client.", "file"),
        Option("enable-systest-events", "Has no effect."),
    ],
    words="TOPIC",
    examples=(
        "spindle kafka console-consumer numbers --from-beginning",
        "spindle kafka console-consumer numbers --group readers --max-messages 10",
        "spindle kafka console-consumer numbers --partition 0 --offset 500",
    ),
)


def _run(options: Options) -> int:
    topics = _topics(options)
    _check(options, topics)
    properties = _client_properties(options)
    group_id = properties.get("group.id")
    if group_id is not None and options.has("partition"):
        raise UsageError("Options group and partition cannot be specified together.")
    start = _start(options, topics, properties)
    prints = check_formatter(options.text("formatter", DEFAULT_FORMATTER))
    record_format = RecordFormat.of(_format_properties(options))
    limit = options.integer("max-messages")
    timeout_ms = options.integer("timeout-ms")
    if limit is not None and limit < 0:
        limit = None
    if timeout_ms is not None and timeout_ms < 0:
        timeout_ms = None
    printed = 0
    with (
        ending_on_signals(),
        connect(
            options.one("bootstrap-server"), properties, client_id="console-consumer"
        ) as client,
    ):
        consumption = Consumption(client, start, group_id)
        try:
            with executing():
                for records in consumption.batches(limit, timeout_ms):
                    for record in records:
                        if prints:
                            sys.stdout.buffer.write(record_format.line(record))
                        printed += 1
                    sys.stdout.flush()
        except NoNewRecords:
            log_line("ERROR", _TIMED_OUT, _LOGGER)
        except KeyboardInterrupt:
            pass
        finally:
            consumption.close()
            click.echo(f"Processed a total of {printed} messages", err=True)
    return 0


def _topics(options: Options) -> list[str]:
    """Return the topics: the value of `--topic`, and the words that belong to no option."""
    if options.loose_words:
        return list(dict.fromkeys([*options.all("topic"), *options.loose_words]))
    topic = options.one("topic")
    return [] if topic is None else [topic]


def _check(options: Options, topics: Sequence[str]) -> None:
    if bool(topics) == options.has("include"):
        raise UsageError(
            "Exactly one of --include/--topic is required. ",
            "Give a topic, or a pattern with --include.",
        )
    if options.has("partition"):
        if len(topics) > 1:
            raise UsageError("", f"--partition takes one topic, got {' and '.join(topics)}")
        if not topics:
            raise UsageError("The topic is required when partition is specified.")
        if options.has("from-beginning") and options.has("offset"):
            raise UsageError("Options from-beginning and offset cannot be specified together.")
    elif options.has("offset"):
        raise UsageError("The partition is required when offset is specified.")
    options.require("bootstrap-server")


def _client_properties(options: Options) -> dict[str, str]:
    files = properties_of(options.one("command-config") or options.one("consumer.config"))
    given = key_values([*options.all("consumer-property"), *options.all("command-property")])
    groups = {
        group
        for group in (options.one("group"), files.get("group.id"), given.get("group.id"))
        if group is not None
    }
    if len(groups) > 1:
        names = ", ".join(f"'{group}'" for group in sorted(groups))
        raise UsageError(
            "The group ids provided in different places (directly using '--group', via "
            "'--consumer-property', or via '--consumer.config') do not match. Detected group ids: "
            f"{names}"
        )
    properties = files | given
    if groups:
        properties["group.id"] = groups.pop()
    level = options.one("isolation-level")
    if level is not None:
        properties["isolation.level"] = level
    return properties


def _format_properties(options: Options) -> dict[str, str]:
    properties = properties_of(options.one("formatter-config"))
    properties |= key_values([*options.all("property"), *options.all("formatter-property")])
    for option, key in (
        ("key-deserializer", "key.deserializer"),
        ("value-deserializer", "value.deserializer"),
    ):
        name = options.one(option)
        if name is not None:
            properties[key] = name
    return properties


def _start(options: Options, topics: Sequence[str], properties: dict[str, str]) -> StartPosition:
    reset = properties.get("auto.offset.reset")
    if options.has("from-beginning") and reset not in (None, "earliest"):
        raise UsageError(
            "Can't simultaneously specify --from-beginning and "
            f"'auto.offset.reset={reset}', please remove one option"
        )
    default = "earliest" if options.has("from-beginning") else reset or "latest"
    if default not in _RESETS:
        raise UsageError(f"auto.offset.reset is {default!r}, want earliest or latest")
    only = None
    number = options.integer("partition")
    if number is not None:
        only = TopicPartition(topics[0], number)
    return StartPosition(
        topics=topics,
        pattern=options.one("include"),
        partition=only,
        offset=_offset(options.one("offset")),
        reset=_RESETS[default],
    )


def _offset(text: str | None) -> int | None:
    if text is None:
        return None
    named = _RESETS.get(text.lower())
    if named is not None:
        return named
    if not text.isdecimal():
        raise UsageError(
            f"The provided offset value '{text}' is incorrect. Valid values are 'earliest', "
            "'latest', or a non-negative long."
        )
    return int(text)


consume = ToolCommand("console-consumer", DECLARATION, _run)
