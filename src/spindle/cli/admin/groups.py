"""`spindle groups`: list and describe groups, reset and delete their offsets, delete them."""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import click

from spindle.cli.admin.output import YES, Cell, confirm, show_rows
from spindle.cli.cluster_command import cluster_command
from spindle.cli.examples import examples
from spindle.cli.failure import CommandFailed
from spindle.cli.parameter_types import DurationMs
from spindle.cli.suggestions import SuggestingGroup
from spindle.cli.table import table_lines
from spindle.cli.tools.groups_text import (
    PartitionRow,
    assignment_text,
    group_json,
    partition_rows,
    titled,
)
from spindle.client.admin.groups import (
    GroupDescription,
    commit_offsets,
    committed_offsets,
    delete_group,
    delete_offsets,
    describe_group,
    list_all_groups,
)
from spindle.client.admin.refusals import refusal_text
from spindle.client.admin.share_groups import ShareOffset, describe_share_group, share_offsets
from spindle.client.blocking.client import WireClient
from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicPartition
from spindle.protocol.sentinels import EARLIEST, LATEST

_MS: Final = 1000
_DEAD: Final = "Dead"
_INACTIVE: Final = ("Empty", _DEAD)
_POSITIONS: Final = {"earliest": EARLIEST, "latest": LATEST}
_LISTING: Final = {"group": "GROUP", "type": "TYPE", "state": "STATE", "protocol": "PROTOCOL"}
_MEMBERS: Final = ("MEMBER", "CLIENT", "HOST", "PARTITIONS")
_OFFSETS: Final = ("TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "CLIENT", "HOST")
_SHARE: Final = "Share"
_SHARE_OFFSETS: Final = ("TOPIC", "PARTITION", "START", "LAG")
_RESET: Final = {
    "topic": "TOPIC",
    "partition": "PARTITION",
    "current": "CURRENT OFFSET",
    "new": "NEW OFFSET",
}

Offsets = dict[TopicPartition, int]
_NO_GROUP: Final = "there is no group {!r}"


@click.group(
    "groups",
    cls=SuggestingGroup,
    epilog=examples(
        "spindle groups list",
        "spindle groups describe billing",
        "spindle groups reset billing --topic orders --to earliest",
    ),
)
def groups() -> None:
    """List, describe and delete groups, and reset their offsets."""


@groups.command("list", epilog=examples("spindle groups list"))
@cluster_command
def list_command(client: WireClient, as_json: bool) -> None:
    """List the groups of every type."""
    rows = [
        (g.group_id, titled(g.group_type), titled(g.state), g.protocol_type)
        for g in list_all_groups(client)
    ]
    show_rows(as_json, _LISTING, rows, "There are no groups.")


@groups.command(
    "describe",
    epilog=examples("spindle groups describe billing", "spindle groups describe --members billing"),
)
@click.argument("names", nargs=-1, required=True, metavar="GROUP...")
@click.option("--members", is_flag=True, help="Show the members instead of the offsets.")
@cluster_command
def describe(client: WireClient, as_json: bool, names: Sequence[str], members: bool) -> None:
    """Show the state, the offsets and the lag of groups, or their members."""
    documents = []
    for number, name in enumerate(dict.fromkeys(names)):
        group = _existing(client, name)
        if group.group_type == _SHARE:
            offsets = share_offsets(client, name)
            if as_json:
                documents.append(_share_json(group, offsets))
                continue
            if number:
                click.echo()
            click.echo("\n".join(share_lines(group, offsets, members=members)))
            continue
        committed = committed_offsets(client, name)
        partitions = [*committed, *(p for m in group.members for p in m.assignment)]
        rows = partition_rows(group, committed, _end_offsets(client, partitions))
        if as_json:
            documents.append(group_json(group, rows))
            continue
        if number:
            click.echo()
        click.echo("\n".join(group_lines(group, rows, members=members)))
    if as_json:
        click.echo(json.dumps(documents))


def group_lines(
    group: GroupDescription, rows: Sequence[PartitionRow], *, members: bool
) -> list[str]:
    """Return the lines about a group: its state, then its partitions or its members."""
    lines = _head_lines(group)
    if members:
        return [*lines, *_member_lines(group)]
    lag = sum(row.lag or 0 for row in rows)
    lines.append(f"members      {len(group.members)}, lag {lag}")
    if not rows:
        return [*lines, "offsets      none"]
    return [*lines, *table_lines(_OFFSETS, [_offset_cells(row) for row in rows])]


def share_lines(
    group: GroupDescription, offsets: Mapping[TopicPartition, ShareOffset], *, members: bool
) -> list[str]:
    """Return the lines about a share group: its state, then its partitions or its members."""
    lines = _head_lines(group)
    if members:
        return [*lines, *_member_lines(group)]
    lag = sum(offset.lag or 0 for offset in offsets.values())
    lines.append(f"members      {len(group.members)}, lag {lag}")
    if not offsets:
        return [*lines, "offsets      none"]
    cells = [
        (p.topic, str(p.partition), *("-" if number is None else str(number) for number in offset))
        for p, offset in offsets.items()
    ]
    return [*lines, *table_lines(_SHARE_OFFSETS, cells)]


def _share_json(
    group: GroupDescription, offsets: Mapping[TopicPartition, ShareOffset]
) -> dict[str, Any]:
    document = group_json(group, None)
    document["offsets"] = [
        {
            "topic": p.topic,
            "partition": p.partition,
            "startOffset": offset.start_offset,
            "lag": offset.lag,
        }
        for p, offset in offsets.items()
    ]
    return document


def _head_lines(group: GroupDescription) -> list[str]:
    at = group.coordinator
    return [
        f"group        {group.group_id}",
        f"state        {titled(group.state)}, {titled(group.group_type)} protocol, "
        f"assignor {group.assignor or 'none'}",
        f"coordinator  broker {at.node_id}, {at.host}:{at.port}",
    ]


def _member_lines(group: GroupDescription) -> list[str]:
    cells = [
        (m.instance_id or m.member_id, m.client_id, m.host, assignment_text(m.assignment))
        for m in group.members
    ]
    return table_lines(_MEMBERS, cells) if cells else ["members      none"]


def _offset_cells(row: PartitionRow) -> tuple[str, ...]:
    numbers = (None if row.committed is None else row.committed.offset, row.end_offset, row.lag)
    return (
        row.partition.topic,
        str(row.partition.partition),
        *("-" if number is None else str(number) for number in numbers),
        "-" if row.member is None else row.member.client_id,
        "-" if row.member is None else row.member.host,
    )


@groups.command(
    "reset",
    epilog=examples(
        "spindle groups reset billing --to earliest",
        "spindle groups reset billing --topic orders:0,1 --to 500 --dry-run",
        "spindle groups reset billing --to 2026-05-01T12:00:00+02:00",
        "spindle groups reset billing --ago 1h",
        "spindle groups reset billing --shift -10",
    ),
)
@click.argument("group_id", metavar="GROUP")
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC[:N,...]",
    help="Only this topic, or some of its partitions; by default all that have offsets.",
)
@click.option(
    "--to",
    "target",
    metavar="OFFSET|TIME",
    help="earliest, latest, an offset, or a time such as 2026-05-01T12:00:00 (UTC).",
)
@click.option(
    "--ago",
    "ago_ms",
    type=DurationMs(),
    metavar="DURATION",
    help="The offsets at a time before now, such as 1h.",
)
@click.option("--shift", type=int, metavar="N", help="Move the offsets by N records.")
@click.option("--dry-run", is_flag=True, help="Show the new offsets, and commit nothing.")
@YES
@cluster_command
def reset(
    client: WireClient,
    as_json: bool,
    group_id: str,
    topics: Sequence[str],
    target: str | None,
    ago_ms: int | None,
    shift: int | None,
    dry_run: bool,
    yes: bool,
) -> None:
    """Set the committed offsets of a group without members.

    New offsets stay within the offsets of the log. Asks first where standard input is a terminal.
    """
    if sum(choice is not None for choice in (target, ago_ms, shift)) != 1:
        raise click.UsageError("Give exactly one of --to, --ago and --shift.")
    if ago_ms is not None:
        target_ms: int | str | None = int(time.time() * _MS) - ago_ms
    else:
        target_ms = _target(target) if target is not None else None
    state = _state(client, group_id)
    if state not in _INACTIVE:
        raise CommandFailed(
            f"group {group_id!r} is {state}: stop its members first, so that they do not commit "
            "over the new offsets"
        )
    committed = {p: o.offset for p, o in committed_offsets(client, group_id).items()}
    partitions = _chosen(client, topics) if topics else list(committed)
    if not partitions:
        raise CommandFailed(f"group {group_id!r} has no committed offsets: give --topic")
    new = new_offsets(client, partitions, committed, target=target_ms, shift=shift)
    rows: list[tuple[Cell, ...]] = [
        (p.topic, p.partition, committed.get(p), offset) for p, offset in sorted(new.items())
    ]
    show_rows(as_json, _RESET, rows, "")
    if not dry_run:
        confirm(f"Commit these offsets for group {group_id}?", yes or as_json)
        commit_offsets(client, group_id, new)


def _target(text: str) -> int | str:
    """Return a time in ms since the epoch, or the text of an offset or a position.

    Raises:
        click.UsageError: the text is neither.
    """
    if text in _POSITIONS or text.isdecimal():
        return text
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError(
            f"--to {text}: give earliest, latest, an offset, or a time such as 2026-05-01T12:00:00"
        ) from None
    zone = moment.tzinfo or UTC
    return round(moment.replace(tzinfo=zone).timestamp() * _MS)


def new_offsets(
    client: WireClient,
    partitions: Sequence[TopicPartition],
    committed: Offsets,
    *,
    target: int | str | None,
    shift: int | None,
) -> Offsets:
    """Return the offsets to commit, within the first and the end offset of each partition.

    Args:
        target: a time in ms since the epoch, or `earliest`, `latest` or an offset as text.
        shift: without a target, the distance from the committed offset.

    Raises:
        CommandFailed: a partition to shift has no committed offset.
    """
    first = _offsets(client, dict.fromkeys(partitions, EARLIEST))
    end = _offsets(client, dict.fromkeys(partitions, LATEST))
    if isinstance(target, int):
        at_time = _offsets(client, dict.fromkeys(partitions, target))
        return {p: end[p] if offset < 0 else offset for p, offset in at_time.items()}
    if target is not None:
        if target in _POSITIONS:
            return first if target == "earliest" else end
        wanted = dict.fromkeys(partitions, int(target))
    else:
        missing = [p for p in partitions if p not in committed]
        if missing:
            raise CommandFailed(f"{missing[0]} has no committed offset to shift")
        wanted = {p: committed[p] + (shift or 0) for p in partitions}
    return {p: min(max(offset, first[p]), end[p]) for p, offset in wanted.items()}


@groups.command(
    "delete-offsets", epilog=examples("spindle groups delete-offsets billing orders:0,1")
)
@click.argument("group_id", metavar="GROUP")
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC[:N,...]...")
@YES
@cluster_command
@click.pass_context
def delete_offsets_command(
    context: click.Context,
    client: WireClient,
    as_json: bool,
    group_id: str,
    topics: Sequence[str],
    yes: bool,
) -> None:
    """Delete committed offsets of a group in topics that it does not read.

    Asks first where standard input is a terminal. The exit code is 1 if a deletion failed.
    """
    partitions = _chosen(client, topics)
    names = ", ".join(topics)
    confirm(f"Delete the committed offsets of group {group_id} in {names}?", yes)
    try:
        outcome = delete_offsets(client, group_id, partitions)
    except ApiError as refusal:
        raise CommandFailed(_failure_text(group_id, refusal)) from None
    documents: list[dict[str, Any]] = [
        {
            "group": group_id,
            "topic": p.topic,
            "partition": p.partition,
            "error": None if error is None else refusal_text(error),
        }
        for p, error in sorted(outcome.items())
    ]
    if as_json:
        click.echo(json.dumps(documents))
    for p, error in [] if as_json else sorted(outcome.items()):
        if error is None:
            click.echo(f"deleted the offset of {p}")
        else:
            click.echo(f"the offset of {p} is not deleted: {refusal_text(error)}", err=True)
    if any(outcome.values()):
        context.exit(1)


@groups.command("delete", epilog=examples("spindle groups delete billing"))
@click.argument("names", nargs=-1, required=True, metavar="GROUP...")
@YES
@cluster_command
@click.pass_context
def delete(
    context: click.Context, client: WireClient, as_json: bool, names: Sequence[str], yes: bool
) -> None:
    """Delete groups without members, with their committed offsets.

    Asks first where standard input is a terminal. The exit code is 1 if a deletion failed.
    """
    confirm(f"Delete {', '.join(names)} with all committed offsets?", yes)
    failed: dict[str, str] = {}
    for name in dict.fromkeys(names):
        try:
            delete_group(client, name)
        except ApiError as error:
            failed[name] = refusal_text(error)
            if not as_json:
                click.echo(_failure_text(name, error), err=True)
        else:
            if not as_json:
                click.echo(f"deleted {name}")
    if as_json:
        done = [name for name in dict.fromkeys(names) if name not in failed]
        click.echo(json.dumps({"deleted": done, "failed": failed}))
    if failed:
        context.exit(1)


def _failure_text(name: str, error: ApiError) -> str:
    """Return why a group, or its offsets, cannot be deleted."""
    if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
        return _NO_GROUP.format(name)
    return f"group {name!r} is not changed: {refusal_text(error)}"


def _existing(client: WireClient, name: str) -> GroupDescription:
    try:
        group = describe_group(client, name)
    except ApiError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
    else:
        if group.state != _DEAD:
            return group
    # A broker that knows no types of groups reports none.
    share_groups = {g.group_id for g in list_all_groups(client) if titled(g.group_type) == _SHARE}
    if name in share_groups:
        return describe_share_group(client, name)
    raise CommandFailed(_NO_GROUP.format(name))


def _state(client: WireClient, name: str) -> str:
    try:
        return describe_group(client, name).state
    except ApiError as error:
        if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
            return _DEAD
        raise


def _chosen(client: WireClient, texts: Sequence[str]) -> list[TopicPartition]:
    """Return the partitions of texts such as `orders` and `orders:0,1`.

    Raises:
        click.UsageError: a text has another form.
        CommandFailed: a topic or a partition does not exist.
    """
    numbers: dict[str, list[int] | None] = {}
    for text in texts:
        topic, separator, listed = text.partition(":")
        parts = listed.split(",") if separator else []
        if not topic or not all(part.isdecimal() for part in parts):
            raise click.UsageError(
                f"{text!r} is not TOPIC or TOPIC:N,..., such as orders or orders:0,1"
            )
        numbers[topic] = [int(part) for part in parts] or None
    view = client.metadata(list(numbers))
    chosen = []
    for topic, wanted in numbers.items():
        if topic not in view.topics:
            raise CommandFailed(f"there is no topic {topic!r}")
        known = list(view.topics[topic].partitions)
        for number in wanted or known:
            if number not in known:
                raise CommandFailed(
                    f"topic {topic!r} has no partition {number}; it has {len(known)}"
                )
            chosen.append(TopicPartition(topic, number))
    return chosen


def _end_offsets(client: WireClient, partitions: Iterable[TopicPartition]) -> Offsets:
    """Return the end offsets of the partitions that exist and have a leader."""
    wanted = list(dict.fromkeys(partitions))
    if not wanted:
        return {}
    view = client.metadata(sorted({partition.topic for partition in wanted}))
    return _offsets(client, {p: LATEST for p in wanted if view.has_leader(p)})


def _offsets(client: WireClient, times: Offsets) -> Offsets:
    listed = client.list_offsets(times) if times else {}
    return {partition: result.offset for partition, result in listed.items()}
