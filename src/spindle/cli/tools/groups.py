"""`kafka-consumer-groups`: list, describe, reset and delete consumer groups."""

import json
from collections.abc import Iterable, Sequence
from typing import Final

import click

from spindle.cli.tools.bootstrap import connect_as
from spindle.cli.tools.command import ToolCommand
from spindle.cli.tools.failures import ToolFailed, UsageError, executing, failure
from spindle.cli.tools.groups_offsets import delete_offsets_of_group, partitions_named
from spindle.cli.tools.groups_reset import SCENARIOS, new_positions, plan_lines
from spindle.cli.tools.groups_text import (
    failed_deletion_lines,
    group_json,
    listing_json,
    listing_lines,
    member_lines,
    offset_lines,
    partition_rows,
    reset_json,
    reset_lines,
    state_lines,
)
from spindle.cli.tools.options import (
    BOOTSTRAP_SERVER,
    COMMAND_CONFIG,
    JSON,
    Declaration,
    Option,
    Options,
)
from spindle.client.admin.groups import (
    GroupDescription,
    commit_offsets,
    committed_offsets,
    delete_group,
    describe_group,
    list_groups,
)
from spindle.client.admin.refusals import refusal_text
from spindle.client.blocking.client import WireClient
from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicPartition
from spindle.common.java_text import in_map_order, string_hash
from spindle.coordinator.consumer.subscriptions import check_regex
from spindle.protocol.sentinels import LATEST

_ACTIONS: Final = (
    "list",
    "describe",
    "delete",
    "reset-offsets",
    "delete-offsets",
    "validate-regex",
)
_STATES: Final = (
    "Dead",
    "PreparingRebalance",
    "Reconciling",
    "CompletingRebalance",
    "Stable",
    "Assigning",
    "Empty",
)
_TYPES: Final = ("Consumer", "Classic")
_DEFAULT_TIMEOUT_MS: Final = 30_000
_REBALANCING: Final = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")

_REGEX_REASONS: Final = {
    "bad repetition operator": "invalid nested repetition operator",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
}
"""The words of RE2 for Java, which Kafka uses, by those of RE2."""

DECLARATION: Final = Declaration(
    "List and describe consumer groups, delete them, and reset or delete their offsets.",
    [
        BOOTSTRAP_SERVER,
        COMMAND_CONFIG,
        JSON,
        Option("group", "The group; may be repeated.", "group"),
        Option("topic", "A topic, or topic:0,1 for some partitions; may be repeated.", "topic"),
        Option("all-topics", "All topics that the group has positions in."),
        Option("list", "Show the names of the groups."),
        Option("describe", "Show positions and lag, members, or the state of groups."),
        Option("all-groups", "All groups."),
        Option("delete", "Delete groups with their positions."),
        Option("timeout", "How long to wait for the coordinator, 30000 by default.", "ms"),
        Option("reset-offsets", "Set the positions of groups without members."),
        Option("delete-offsets", "Delete the positions of a group in topics."),
        Option("validate-regex", "Check a pattern for subscriptions.", "regex"),
        Option("dry-run", "Only show what --reset-offsets would set."),
        Option("execute", "Set the positions."),
        Option("export", "Show the positions as lines that --from-file reads."),
        Option("to-offset", "A position.", "offset"),
        Option("from-file", "Positions of a file.", "file"),
        Option("to-datetime", "The position at a time: YYYY-MM-DDTHH:mm:SS.sss.", "time"),
        Option("by-duration", "The position of some time ago: PnDTnHnMnS.", "duration"),
        Option("to-earliest", "The first records."),
        Option("to-latest", "After the last records."),
        Option("to-current", "The committed offset."),
        Option("shift-by", "Shift by this many records (negative: back).", "count"),
        Option("members", "Describe the members."),
        Option("verbose", "Describe in more detail."),
        Option("offsets", "Describe positions and lag, which is what --describe does anyway."),
        Option("state", "Describe the state, or list only these states.", "states", None, True),
        Option("type", "List with types, or only these types.", "types", None, True),
    ],
    examples=(
        "spindle kafka consumer-groups --list",
        "spindle kafka consumer-groups --describe --group billing",
        "spindle kafka consumer-groups --reset-offsets --group billing --all-topics --to-earliest "
        "--execute",
    ),
)


def _run(options: Options) -> int:
    _check(options)
    options.exactly_one(
        f"Command must include exactly one action: --{', --'.join(_ACTIONS)}", *_ACTIONS
    )
    pattern = options.one("validate-regex")
    if pattern is not None:
        _validate(pattern)
        return 0
    with executing():
        timeout_ms = options.integer("timeout")
        with connect_as(options, api_timeout_ms=timeout_ms or _DEFAULT_TIMEOUT_MS) as client:
            _act(options, client)
    # Kafka's tool prints what failed and exits with 0.
    return 0


def _act(options: Options, client: WireClient) -> None:
    if options.has("delete"):
        _delete(options, client)
    elif options.has("reset-offsets"):
        _reset(options, client)
    elif options.has("delete-offsets"):
        group_id, topics = options.text("group"), options.all("topic")
        try:
            delete_offsets_of_group(client, group_id, topics, as_json=options.has("json"))
        except ToolFailed as error:
            raise UsageError(error.message) from None
    elif options.has("list"):
        _list(options, client)
    else:
        _describe(options, client)


def _check(options: Options) -> None:
    if not options.has("validate-regex"):
        options.require("bootstrap-server")
    for action in ("describe", "delete", "reset-offsets"):
        if action == "reset-offsets" and options.has(action):
            _check_execution(options)
        if options.has(action) and not options.has("group") and not options.has("all-groups"):
            raise UsageError(f"Option [{action}] takes one of these options: [group], [all-groups]")
    if options.has("describe"):
        _check_describe(options)
    if options.has("delete") and options.has("topic"):
        raise UsageError(
            "The consumer does not support topic-specific offset deletion from a consumer group."
        )
    if options.has("delete-offsets") and not (options.has("group") and options.has("topic")):
        raise UsageError("Option [delete-offsets] takes the following options: [group], [topic]")
    if options.has("reset-offsets"):
        for scenario in SCENARIOS:
            options.forbid(scenario, *(name for name in SCENARIOS if name != scenario))
    options.forbid("group", "all-groups", "list")
    options.forbid("topic", "list", "describe")


def _check_describe(options: Options) -> None:
    if sum(map(options.has, ("members", "offsets", "state"))) > 1:
        raise UsageError(
            "Option [describe] takes at most one of these options: [members], [offsets], [state]"
        )
    if options.has("state") and options.one("state") is not None:
        raise UsageError("Option [describe] does not take a value for [state]")


def _check_execution(options: Options) -> None:
    if options.has("dry-run") and options.has("execute"):
        raise UsageError("Option [reset-offsets] only accepts one of [execute] and [dry-run]")
    if not options.has("dry-run") and not options.has("execute"):
        click.echo(
            "WARN: No action will be performed as the --execute option is missing. In version "
            "5.0, this command will require either --dry-run or --execute to be specified. You "
            "should add the --dry-run option explicitly if you are scripting this command and "
            "want to keep the current default behavior without prompting.",
            err=True,
        )


def _list(options: Options, client: WireClient) -> None:
    with_type, with_state = options.has("type"), options.has("state")
    listings = list_groups(
        client,
        states=_chosen(options.one("state"), _STATES, "state"),
        types=_chosen(options.one("type"), _TYPES, "types"),
    )
    groups = in_map_order(listings, lambda group: string_hash(group.group_id))
    if options.has("json"):
        click.echo(json.dumps([listing_json(group) for group in listings]))
    elif with_type or with_state:
        for line in listing_lines(groups, with_type=with_type, with_state=with_state):
            click.echo(line)
    else:
        for group in groups:
            click.echo(group.group_id)


def _chosen(text: str | None, known: Sequence[str], what: str) -> list[str]:
    """Return the names in a list, without regard to case.

    Raises:
        UsageError: one of them is unknown.
    """
    by_name = {name.lower(): name for name in known}
    if not text:
        return []
    try:
        return [by_name[part.strip().lower()] for part in text.split(",")]
    except KeyError:
        raise UsageError(
            f"Invalid {what} list '{text}'. Valid {what.rstrip('s')}s are: {', '.join(known)}"
        ) from None


def _group_ids(options: Options, client: WireClient) -> list[str]:
    if options.has("all-groups"):
        group_ids = (group.group_id for group in list_groups(client))
        return in_map_order(group_ids, string_hash)
    return in_map_order(dict.fromkeys(options.all("group")), string_hash)


def _describe(options: Options, client: WireClient) -> None:
    verbose = options.has("verbose")
    wants_offsets = not options.has("members") and not options.has("state")
    documents = []
    described = [describe_group(client, group_id) for group_id in _group_ids(options, client)]
    for group in sorted(described, key=lambda each: each.group_id):
        if wants_offsets:
            committed = committed_offsets(client, group.group_id)
            assigned = (p for member in group.members for p in member.assignment)
            rows = partition_rows(group, committed, end_offsets(client, [*committed, *assigned]))
            lines = offset_lines(rows, verbose=verbose) if rows else []
        else:
            rows = None
            render = member_lines if options.has("members") else state_lines
            lines = render(group, verbose=verbose)
        if options.has("json"):
            documents.append(group_json(group, rows))
        elif _has_members_to_show(group):
            for line in lines:
                click.echo(line)
    if options.has("json"):
        click.echo(json.dumps(documents))


def _has_members_to_show(group: GroupDescription) -> bool:
    """Report an unusual state of the group; return whether its lines follow."""
    if group.state == "Dead":
        click.echo(f"\nError: Consumer group '{group.group_id}' does not exist.")
        return False
    if group.state == "Empty":
        click.echo(f"\nConsumer group '{group.group_id}' has no active members.", err=True)
    elif group.state in _REBALANCING:
        click.echo(f"\nWarning: Consumer group '{group.group_id}' is rebalancing.", err=True)
    return True


def end_offsets(
    client: WireClient, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return the end offsets of the partitions that exist and have a leader."""
    wanted = list(dict.fromkeys(partitions))
    if not wanted:
        return {}
    view = client.metadata(sorted({partition.topic for partition in wanted}))
    led = [partition for partition in wanted if view.has_leader(partition)]
    offsets = client.list_offsets(dict.fromkeys(led, LATEST)) if led else {}
    return {partition: offset.offset for partition, offset in offsets.items()}


def _delete(options: Options, client: WireClient) -> None:
    done: list[str] = []
    failed: dict[str, ApiError] = {}
    for group_id in _group_ids(options, client):
        try:
            delete_group(client, group_id)
            done.append(group_id)
        except ApiError as error:
            failed[group_id] = error
    if options.has("json"):
        reasons = {group_id: refusal_text(error) for group_id, error in failed.items()}
        click.echo(json.dumps({"deleted": done, "failed": reasons}))
    elif not failed:
        names = ", ".join(done)
        click.echo(f"Deletion of requested consumer groups ('{names}') was successful.")
    else:
        for line in failed_deletion_lines(done, failed):
            click.echo(line)


def _reset(options: Options, client: WireClient) -> None:
    offsets: dict[str, dict[TopicPartition, int]] = {}
    for group_id in _group_ids(options, client):
        state = _state_of(client, group_id)
        if state not in ("Empty", "Dead"):
            click.echo(
                f"\nError: Assignments can only be reset if the group '{group_id}' is inactive, "
                f"but the current state is {state}."
            )
            offsets[group_id] = {}
            continue
        partitions = _scope(options, client, group_id)
        offsets[group_id] = new_positions(client, options, group_id, partitions)
        if options.has("execute") and offsets[group_id]:
            commit_offsets(client, group_id, offsets[group_id])
    if options.has("export"):
        click.echo(plan_lines(offsets, with_group=len(options.all("group")) != 1))
    elif options.has("json"):
        click.echo(json.dumps(reset_json(offsets)))
    else:
        for line in reset_lines(offsets):
            click.echo(line)


def _state_of(client: WireClient, group_id: str) -> str:
    try:
        return describe_group(client, group_id).state
    except ApiError as error:
        if error.code.name == "GROUP_ID_NOT_FOUND":
            return "Dead"
        raise


def _scope(options: Options, client: WireClient, group_id: str) -> list[TopicPartition]:
    if options.has("all-topics"):
        return list(committed_offsets(client, group_id))
    if options.has("topic"):
        return [p for text in options.all("topic") for p in _partitions_of(client, text)]
    if options.has("from-file"):
        return []
    raise UsageError("One of the reset scopes should be defined: --all-topics, --topic.")


def _partitions_of(client: WireClient, text: str) -> list[TopicPartition]:
    try:
        return partitions_named(client, [text])
    except ToolFailed as error:
        raise UsageError(error.message) from None
    except ApiError as error:
        # Kafka's tool does not say which topic it is.
        reason = failure(error)
        plainly = (
            f"there is no topic {text!r}"
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else f"topic {text!r}: {reason.plainly}"
        )
        raise ToolFailed(reason.text, reason.java_class, plainly) from error


def _validate(pattern: str) -> None:
    try:
        check_regex(pattern)
    except ApiError as error:
        text = (error.message or "").partition("regular expression: ")[2]
        message = text.rpartition(": ")[0] or text.rstrip(".")
        reason = _REGEX_REASONS.get(message, message)
        click.echo(f"The regular expression `{pattern}` is invalid: {reason}.")
        return
    click.echo(f"The regular expression `{pattern}` is valid.")


groups = ToolCommand("consumer-groups", DECLARATION, _run)
