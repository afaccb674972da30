"""Partitions by name for `kafka-consumer-groups`, and the deletion of their committed offsets."""

import json
from collections.abc import Sequence
from typing import Any

import click

from spindle.cli.tools.failures import ToolFailed
from spindle.client.admin.groups import delete_offsets
from spindle.client.admin.refusals import exception_text, refusal_text
from spindle.client.blocking.client import WireClient
from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicPartition

_PARTITION_ERRORS = (
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
_NO_PARTITION = -1


def partitions_named(client: WireClient, texts: Sequence[str]) -> list[TopicPartition]:
    """Return the partitions of `topic:0,1`, or all partitions of a topic.

    Raises:
        ToolFailed: a text is of neither form.
        ApiError: a topic does not exist.
    """
    named = [p for text in texts if ":" in text for p in parse_partitions(text)]
    topics = [text for text in texts if ":" not in text]
    view = client.metadata(topics) if topics else None
    if view is None:
        return named
    for name in topics:
        if name not in view.topics:
            # Without a text, the caller shows that of the error code.
            raise ApiError(view.refused.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        named += [TopicPartition(name, number) for number in view.topic(name).partitions]
    return named


def parse_partitions(text: str) -> list[TopicPartition]:
    """Return the partitions of `topic:0,1`.

    Raises:
        ToolFailed: the text is of another form.
    """
    topic, _, numbers = text.partition(":")
    if not topic or not numbers or ":" in numbers:
        raise ToolFailed(f"Invalid topic arg '{text}', expected topic name and partitions")
    partitions = []
    for number in numbers.split(","):
        if not number.isdecimal():
            raise ToolFailed(f"Invalid partition '{number}' specified in topic arg '{text}''")
        partitions.append(TopicPartition(topic, int(number)))
    return partitions


def delete_offsets_of_group(
    client: WireClient, group_id: str, texts: Sequence[str], *, as_json: bool = False
) -> None:
    """Delete committed offsets of a group; print the outcome of each partition."""
    outcome: dict[TopicPartition, ApiError | None] = {}
    wanted: list[TopicPartition] = []
    for text in texts:
        try:
            wanted += partitions_named(client, [text])
        except ApiError as error:
            outcome[TopicPartition(text, _NO_PARTITION)] = error
    refused: ApiError | None = None
    try:
        answered = delete_offsets(client, group_id, wanted)
        outcome |= answered
        refused = next((error for error in answered.values() if error is not None), None)
    except ApiError as error:
        refused = error
        outcome |= dict.fromkeys(wanted, error)
    if as_json:
        click.echo(json.dumps(_outcome_json(group_id, outcome)))
    else:
        for line in outcome_lines(group_id, refused, outcome):
            click.echo(line)


def _outcome_json(
    group_id: str, outcome: dict[TopicPartition, ApiError | None]
) -> list[dict[str, Any]]:
    return [
        {
            "group": group_id,
            "topic": topic,
            "partition": None if number == _NO_PARTITION else number,
            "error": None if error is None else refusal_text(error),
        }
        for (topic, number), error in sorted(outcome.items())
    ]


def outcome_lines(
    group_id: str, refused: ApiError | None, outcome: dict[TopicPartition, ApiError | None]
) -> list[str]:
    """Return the lines about the outcome.

    Args:
        refused: the error of the whole request or of its first partition.
    """
    if refused is None:
        head = [f"Request succeeded for deleting offsets from group {group_id}."]
    elif refused.code in _PARTITION_ERRORS:
        head = ["", "Error: Encountered some partition-level error, see the follow-up details."]
    else:
        head = ["", f"Error: {refusal_text(refused)}"]
    topics = max(15, *(len(partition.topic) for partition in outcome)) if outcome else 15
    rows = ["", f"{'TOPIC':<{topics}} {'PARTITION':<10} {'STATUS':<15}"]
    for (topic, number), error in sorted(outcome.items()):
        shown = "-" if number == _NO_PARTITION else str(number)
        status = "Successful" if error is None else f"Error: {exception_text(error)}"
        rows.append(f"{topic:<{topics}} {shown:<10} {status:<15}")
    return head + rows
