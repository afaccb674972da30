"""`spindle transactions`: list, describe and end transactions, and find those that hang."""

import json
import time
from collections.abc import Sequence
from typing import Final

import click

from spindle.cli.admin.output import YES, confirm, show_rows
from spindle.cli.cluster_command import cluster_command
from spindle.cli.examples import examples
from spindle.cli.failure import CommandFailed
from spindle.cli.parameter_types import PARTITION, DurationMs, WholeRange
from spindle.cli.suggestions import SuggestingGroup
from spindle.cli.tools.transactions_text import transaction_json
from spindle.client.admin.hanging_transactions import find_hanging, long_transactions
from spindle.client.admin.transactions import (
    NO_DURATION_FILTER,
    AbortMarker,
    ActiveProducer,
    TransactionDescription,
    abort_transaction,
    describe_producers,
    describe_transaction,
    list_transactions,
    terminate_transaction,
)
from spindle.client.blocking.client import WireClient
from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicPartition
from spindle.common.text import span_text

_MS: Final = 1000
_HANGING_MS: Final = 15 * 60 * _MS
_LISTING: Final = {
    "transactionalId": "TRANSACTIONAL ID",
    "state": "STATE",
    "coordinator": "COORDINATOR",
    "producerId": "PRODUCER ID",
}
_PRODUCERS: Final = {
    "producerId": "PRODUCER ID",
    "producerEpoch": "EPOCH",
    "lastSequence": "LAST SEQUENCE",
    "lastRecord": "LAST RECORD",
    "transactionStartOffset": "OPEN SINCE OFFSET",
}
_HANGING: Final = {
    "partition": "PARTITION",
    "startOffset": "START OFFSET",
    "producerId": "PRODUCER ID",
    "lastRecord": "LAST RECORD",
}


@click.group(
    "transactions",
    cls=SuggestingGroup,
    epilog=examples(
        "spindle transactions list",
        "spindle transactions describe billing-1",
        "spindle transactions hanging",
    ),
)
def transactions() -> None:
    """List, describe and end transactions, and find those that hang."""


@transactions.command(
    "list",
    epilog=examples(
        "spindle transactions list",
        "spindle transactions list --longer-than 5m --pattern 'billing-.*'",
    ),
)
@click.option(
    "--longer-than",
    "longer_ms",
    type=DurationMs(),
    metavar="DURATION",
    help="Only transactions that have been open longer than this, such as 5m.",
)
@click.option("--pattern", metavar="REGEX", help="Only transactional ids that match.")
@cluster_command
def list_command(
    client: WireClient, as_json: bool, longer_ms: int | None, pattern: str | None
) -> None:
    """List the transactional ids and their states."""
    try:
        listed = list_transactions(
            client,
            min_duration_ms=NO_DURATION_FILTER if longer_ms is None else longer_ms,
            id_pattern=pattern,
        )
    except ApiError as error:
        if error.code is not ErrorCode.INVALID_REGULAR_EXPRESSION:
            raise
        raise click.UsageError(
            f"--pattern {pattern}: this is not a regular expression (RE2)"
        ) from None
    rows = [(t.transactional_id, t.state, t.coordinator_id, t.producer_id) for t in listed]
    show_rows(as_json, _LISTING, rows, "There are no such transactions.")


@transactions.command("describe", epilog=examples("spindle transactions describe billing-1"))
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@cluster_command
def describe(client: WireClient, as_json: bool, ids: Sequence[str]) -> None:
    """Show the state of transactional ids, and the partitions of their open transactions."""
    described = [_described(client, name) for name in dict.fromkeys(ids)]
    now_ms = int(time.time() * _MS)
    if as_json:
        click.echo(json.dumps([transaction_json(entry, now_ms) for entry in described]))
        return
    blocks = ("\n".join(transaction_lines(entry, now_ms)) for entry in described)
    click.echo("\n\n".join(blocks))


def _described(client: WireClient, name: str) -> TransactionDescription:
    try:
        return describe_transaction(client, name)
    except ApiError as error:
        if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise
        raise CommandFailed(f"there is no transactional id {name!r}") from None


def transaction_lines(described: TransactionDescription, now_ms: int) -> list[str]:
    """Return the lines about one transactional id.

    Args:
        now_ms: this time, in ms since the epoch.
    """
    lines = [
        f"transactional id  {described.transactional_id}",
        f"state             {described.state}",
        f"coordinator       broker {described.coordinator_id}",
        f"producer          id {described.producer_id}, epoch {described.producer_epoch}",
        f"timeout           {span_text(described.timeout_ms / _MS)}",
    ]
    if described.start_time_ms is not None:
        age_s = max(0, now_ms - described.start_time_ms) / _MS
        names = ", ".join(map(str, sorted(described.partitions))) or "none yet"
        lines += [f"open for          {span_text(age_s)}", f"partitions        {names}"]
    return lines


@transactions.command("producers", epilog=examples("spindle transactions producers orders-0"))
@click.argument("partition", metavar="TOPIC-PARTITION", type=PARTITION)
@click.option(
    "--broker", "broker_id", type=WholeRange(min=0), metavar="N", help="Ask this broker's replica."
)
@cluster_command
def producers(
    client: WireClient, as_json: bool, partition: TopicPartition, broker_id: int | None
) -> None:
    """Show the idempotent and transactional producers of a partition."""
    _check_partition(client, partition)
    now_ms = int(time.time() * _MS)
    rows = [
        (
            p.producer_id,
            p.producer_epoch,
            p.last_sequence,
            _ago(p, now_ms),
            p.transaction_start_offset,
        )
        for p in describe_producers(client, [partition], broker_id)[partition]
    ]
    show_rows(as_json, _PRODUCERS, rows, f"{partition} has no producers.")


@transactions.command(
    "hanging",
    epilog=examples(
        "spindle transactions hanging",
        "spindle transactions hanging --topic orders --older-than 1h",
    ),
)
@click.option("--topic", metavar="NAME", help="Only transactions in this topic.")
@click.option(
    "--broker", "broker_id", type=WholeRange(min=0), metavar="N", help="Only this broker."
)
@click.option(
    "--older-than",
    "age_ms",
    type=DurationMs(),
    metavar="DURATION",
    default=_HANGING_MS,
    help="Only those without a record for this long (default: 15m).",
)
@cluster_command
def hanging(
    client: WireClient, as_json: bool, topic: str | None, broker_id: int | None, age_ms: int
) -> None:
    """Find transactions that no coordinator will end, so that consumers with read_committed stop.

    'spindle transactions abort' ends one.
    """
    view = client.metadata(None if topic is None else [topic])
    if topic is not None and topic not in view.topics:
        raise CommandFailed(f"there is no topic {topic!r}")
    if broker_id is not None:
        view.broker(str(broker_id))
    partitions = [
        TopicPartition(known.name, partition.partition)
        for known in view.topics.values()
        for partition in known.partitions.values()
        if broker_id is None or broker_id in partition.replicas
    ]
    now_ms = int(time.time() * _MS)
    opened = long_transactions(
        client, partitions, broker_id=broker_id, older_than_ms=now_ms - age_ms
    )
    rows = [
        (
            str(t.partition),
            t.producer.transaction_start_offset,
            t.producer.producer_id,
            _ago(t.producer, now_ms),
        )
        for t in find_hanging(client, opened)
    ]
    show_rows(as_json, _HANGING, rows, "No transaction hangs.")


@transactions.command("abort", epilog=examples("spindle transactions abort orders-2 305"))
@click.argument("partition", metavar="TOPIC-PARTITION", type=PARTITION)
@click.argument("start_offset", metavar="START-OFFSET", type=WholeRange(min=0))
@YES
@cluster_command
def abort(
    client: WireClient, as_json: bool, partition: TopicPartition, start_offset: int, yes: bool
) -> None:
    """Abort a hanging transaction in one partition, by the offset at which it begins.

    Asks first where standard input is a terminal.
    """
    _check_partition(client, partition)
    active = describe_producers(client, [partition])[partition]
    for producer in active:
        if producer.transaction_start_offset == start_offset:
            break
    else:
        raise CommandFailed(f"no open transaction of {partition} begins at offset {start_offset}")
    confirm(f"Abort the transaction of producer {producer.producer_id} in {partition}?", yes)
    marker = AbortMarker(
        partition,
        producer.producer_id,
        producer.producer_epoch,
        max(0, producer.coordinator_epoch),
    )
    abort_transaction(client, marker)
    document = {"partition": str(partition), "startOffset": start_offset}
    text = f"aborted the transaction of {partition} that began at offset {start_offset}"
    click.echo(json.dumps(document) if as_json else text)


@transactions.command("terminate", epilog=examples("spindle transactions terminate billing-1"))
@click.argument("name", metavar="ID")
@YES
@cluster_command
def terminate(client: WireClient, as_json: bool, name: str, yes: bool) -> None:
    """Abort the open transaction of a transactional id, and fence its producer.

    Asks first where standard input is a terminal.
    """
    # The request would create a transactional id that does not exist.
    _described(client, name)
    confirm(f"Abort the transaction of {name}, and fence its producer?", yes)
    terminate_transaction(client, name)
    click.echo(json.dumps([name]) if as_json else f"{name} has no open transaction now")


def _check_partition(client: WireClient, partition: TopicPartition) -> None:
    """Check that a partition exists; a request about it is retried for a minute.

    Raises:
        CommandFailed: there is no such partition.
    """
    topic = client.metadata([partition.topic]).topics.get(partition.topic)
    if topic is None:
        raise CommandFailed(f"there is no topic {partition.topic!r}")
    if partition.partition not in topic.partitions:
        raise CommandFailed(
            f"topic {partition.topic!r} has no partition {partition.partition}; "
            f"it has {len(topic.partitions)}"
        )


def _ago(producer: ActiveProducer, now_ms: int) -> str:
    return f"{span_text(max(0, now_ms - producer.last_timestamp_ms) / _MS)} ago"
