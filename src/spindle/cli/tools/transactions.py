"""`kafka-transactions`: list, describe and end transactions, and find those that hang."""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import click

from spindle.cli.tools.bootstrap import connect_as
from spindle.cli.tools.command import ToolCommand, ToolGroup
from spindle.cli.tools.failures import FAILURES, ToolFailed, UsageError, WrongOptions, failure
from spindle.cli.tools.options import (
    BOOTSTRAP_SERVER,
    COMMAND_CONFIG,
    JSON,
    Declaration,
    Option,
    Options,
    missing_text,
)
from spindle.cli.tools.transactions_text import (
    hanging_json,
    hanging_table,
    listing_json,
    listing_table,
    producer_json,
    producer_table,
    transaction_json,
    transaction_table,
)
from spindle.client.admin.hanging_transactions import find_hanging, long_transactions
from spindle.client.admin.transactions import (
    NO_DURATION_FILTER,
    AbortMarker,
    abort_transaction,
    describe_producers,
    describe_transaction,
    list_transactions,
    terminate_transaction,
)
from spindle.client.blocking.client import WireClient
from spindle.common.ids import TopicPartition

_MS: Final = 1000
_MINUTE_MS: Final = 60_000
_DEFAULT_TIMEOUT_MINUTES: Final = 15
_INT_BITS: Final = {"Short": 15, "Integer": 31, "Long": 63}
_INT_BOUND: Final = 1 << 31

DECLARATION: Final = Declaration(
    "List, describe and end transactions, and find those that hang.",
    (BOOTSTRAP_SERVER, COMMAND_CONFIG),
    examples=("spindle kafka transactions list",),
)
_TOPIC: Final = Option("topic", "The topic.", "topic")
_PARTITION: Final = Option("partition", "The number of the partition.", "number")
_BROKER: Final = Option("broker-id", "Look at the replicas of this broker.", "id")
LIST: Final = Declaration(
    "List transactional ids and their states.",
    (
        Option("duration-filter", "Only transactions that run longer.", "ms"),
        Option("transactional-id-pattern", "Only ids that match an expression.", "regex"),
        JSON,
    ),
    examples=("spindle kafka transactions list",),
)
DESCRIBE: Final = Declaration(
    "Show the state of a transactional id.",
    (Option("transactional-id", "The transactional id.", "id"), JSON),
    examples=("spindle kafka transactions describe --transactional-id billing-1",),
)
DESCRIBE_PRODUCERS: Final = Declaration(
    "Show the idempotent producers of a partition.",
    (_BROKER, _TOPIC, _PARTITION, JSON),
    examples=("spindle kafka transactions describe-producers --topic orders --partition 0",),
)
ABORT: Final = Declaration(
    "End a hanging transaction in one partition.",
    (
        _TOPIC,
        _PARTITION,
        Option("start-offset", "The first offset of the transaction.", "offset"),
        Option("producer-id", "Its producer id; for brokers before 3.0.", "id"),
        Option("producer-epoch", "The epoch of the producer.", "epoch"),
        Option("coordinator-epoch", "The epoch of its coordinator.", "epoch"),
    ),
    examples=("spindle kafka transactions abort --topic orders --partition 2 --start-offset 305",),
)
FIND_HANGING: Final = Declaration(
    "Find transactions that nothing will end.",
    (
        _BROKER,
        Option(
            "max-transaction-timeout",
            "Only transactions without a record for this time.",
            "minutes",
        ),
        _TOPIC,
        _PARTITION,
        JSON,
    ),
    examples=("spindle kafka transactions find-hanging --broker-id 1",),
)
TERMINATE: Final = Declaration(
    "Abort a transaction and fence its producer.",
    (Option("transactionalId", "The transactional id.", "id", aliases=("transactional-id",)),),
    examples=("spindle kafka transactions forceTerminateTransaction --transactional-id billing-1",),
)


def _list(options: Options) -> None:
    min_duration_ms = _integer(options, "duration-filter", "Long")
    pattern = options.one("transactional-id-pattern")
    with _connected(options) as client, _doing("Failed to list transactions"):
        listed = list_transactions(
            client,
            min_duration_ms=NO_DURATION_FILTER if min_duration_ms is None else min_duration_ms,
            id_pattern=pattern,
        )
    _show(options, listing_table(listed), [listing_json(entry) for entry in listed])


def _describe(options: Options) -> None:
    _require(options, "transactional-id")
    name = options.text("transactional-id")
    doing = f"Failed to describe transaction state of transactional-id `{name}`"
    with _connected(options) as client, _doing(doing):
        described = describe_transaction(client, name)
    now_ms = int(time.time() * _MS)
    _show(options, transaction_table(described, now_ms), transaction_json(described, now_ms))


def _describe_producers(options: Options) -> None:
    _require(options, "partition", "topic")
    partition, broker_id = _partition(options), _integer(options, "broker-id", "Integer")
    asked = "leader" if broker_id is None else f"broker {broker_id}"
    doing = f"Failed to describe producers for partition {partition} on {asked}"
    with _connected(options) as client, _doing(doing):
        producers = describe_producers(client, [partition], broker_id)[partition]
    _show(options, producer_table(producers), [producer_json(producer) for producer in producers])


def _abort(options: Options) -> None:
    _require(options, "partition", "topic")
    partition = _partition(options)
    start_offset = _integer(options, "start-offset", "Long")
    producer_id = _integer(options, "producer-id", "Long")
    epoch = _integer(options, "producer-epoch", "Short")
    coordinator_epoch = _integer(options, "coordinator-epoch", "Integer")
    with _connected(options) as client:
        if start_offset is not None:
            marker = _marker_at(client, partition, start_offset)
        else:
            if producer_id is None:
                raise WrongOptions(
                    "The transaction to abort must be identified either with --start-offset (for "
                    "brokers on 3.0 or above) or with --producer-id, --producer-epoch, and "
                    "--coordinator-epoch (for older brokers)"
                )
            if epoch is None:
                raise WrongOptions("Missing required argument --producer-epoch")
            if coordinator_epoch is None:
                raise WrongOptions("Missing required argument --coordinator-epoch")
            # A producer that never ended a transaction is described with the epoch -1.
            marker = AbortMarker(partition, producer_id, epoch, max(0, coordinator_epoch))
        with _doing(f"Failed to abort transaction {marker}"):
            abort_transaction(client, marker)


def _marker_at(client: WireClient, partition: TopicPartition, start_offset: int) -> AbortMarker:
    """Return the marker for the transaction that begins at an offset.

    Raises:
        ToolFailed: there is none.
    """
    with _doing(f"Failed to validate producer state for partition {partition}"):
        producers = describe_producers(client, [partition])[partition]
    for producer in producers:
        if producer.transaction_start_offset == start_offset:
            return AbortMarker(
                partition,
                producer.producer_id,
                producer.producer_epoch,
                max(0, producer.coordinator_epoch),
            )
    raise ToolFailed(
        f"Could not find any open transactions starting at offset {start_offset} on partition "
        f"{partition}"
    )


def _find_hanging(options: Options) -> None:
    broker_id = _integer(options, "broker-id", "Integer")
    minutes = _integer(options, "max-transaction-timeout", "Integer")
    number = _integer(options, "partition", "Integer")
    if broker_id is None and not options.has("topic"):
        raise ToolFailed(
            "The `find-hanging` command requires either --topic or --broker-id to limit the scope "
            "of the search"
        )
    if number is not None and not options.has("topic"):
        raise ToolFailed("The --partition argument requires --topic to be provided")
    timeout_ms = (_DEFAULT_TIMEOUT_MINUTES if minutes is None else minutes) * _MINUTE_MS
    now_ms = int(time.time() * _MS)
    with _connected(options) as client:
        topic = options.one("topic")
        partitions = _partitions_to_search(client, topic, number, broker_id)
        asked = "Optional.empty" if broker_id is None else f"Optional[{broker_id}]"
        doing = f"Failed to describe producers for {len(partitions)} partitions"
        with _doing(f"{doing} on broker {asked}", doing):
            opened = long_transactions(
                client, partitions, broker_id=broker_id, older_than_ms=now_ms - timeout_ms
            )
        with _doing(f"Failed to describe {len(opened)} transactions"):
            transactions = find_hanging(client, opened)
    _show(
        options,
        hanging_table(transactions, now_ms),
        [hanging_json(transaction) for transaction in transactions],
    )


def _partitions_to_search(
    client: WireClient, topic: str | None, number: int | None, broker_id: int | None
) -> list[TopicPartition]:
    if topic is not None and number is not None:
        return [TopicPartition(topic, number)]
    with _doing("Failed to list topics" if topic is None else "Failed to describe 1 topics"):
        view = client.metadata(None if topic is None else [topic])
        topics = [view.topic(topic)] if topic is not None else list(view.topics.values())
    return [
        TopicPartition(topic.name, partition.partition)
        for topic in topics
        for partition in topic.partitions.values()
        if broker_id is None or broker_id in partition.replicas
    ]


def _terminate(options: Options) -> None:
    _require(options, "transactionalId")
    name = options.text("transactionalId")
    with (
        _connected(options) as client,
        _doing(f"Failed to force terminate transactionalId `{name}`"),
    ):
        terminate_transaction(client, name)


def _connected(options: Options) -> WireClient:
    _require(options, "bootstrap-server")
    return connect_as(options)


def _require(options: Options, *names: str) -> None:
    """Require options.

    Raises:
        UsageError: one is missing.
    """
    for name in ("bootstrap-server", *names):
        if not options.has(name):
            raise UsageError(f"argument --{name} is required", missing_text(name))


def _integer(options: Options, name: str, java_type: str) -> int | None:
    """Return a number that fits the type of Kafka's option, None without it.

    Raises:
        UsageError: the text is no such number.
    """
    text = options.one(name)
    if text is None:
        return None
    bound = 1 << _INT_BITS[java_type]
    reason = f'For input string: "{text}"'
    try:
        value = int(text)
        if -bound <= value < bound:
            return value
        if java_type == "Short" and -_INT_BOUND <= value < _INT_BOUND:
            reason = f'Value out of range. Value:"{text}" Radix:10'
    except ValueError:
        pass
    raise UsageError(
        f"argument --{name}: could not convert '{text}' to {java_type} ({reason})",
        f"--{name} {text}: a whole number is needed",
    )


def _partition(options: Options) -> TopicPartition:
    return TopicPartition(options.text("topic"), _integer(options, "partition", "Integer") or 0)


@contextmanager
def _doing(what: str, plainly: str | None = None) -> Iterator[None]:
    """Describe a failure in the words of Kafka's tool and, where they differ, in Spindle's.

    Raises:
        ToolFailed: in place of one of `FAILURES`.
    """
    try:
        yield
    except ToolFailed:
        raise
    except FAILURES as error:
        reason = failure(error)
        raise ToolFailed(
            f"{what}: {reason.text}. Enable debug logging for additional detail.",
            reason.java_class,
            f"{plainly or what}: {reason.plainly}",
        ) from error


def _show(options: Options, lines: Sequence[str], document: Any) -> None:
    if options.has("json"):
        click.echo(json.dumps(document))
        return
    for line in lines:
        click.echo(line)


transactions = ToolGroup(
    "transactions",
    DECLARATION,
    [
        ToolCommand("list", LIST, _list, is_part=True),
        ToolCommand("describe", DESCRIBE, _describe, is_part=True),
        ToolCommand("describe-producers", DESCRIBE_PRODUCERS, _describe_producers, is_part=True),
        ToolCommand("abort", ABORT, _abort, is_part=True),
        ToolCommand("find-hanging", FIND_HANGING, _find_hanging, is_part=True),
        ToolCommand("forceTerminateTransaction", TERMINATE, _terminate, is_part=True),
    ],
    version_names=("-v", "--version"),
)
