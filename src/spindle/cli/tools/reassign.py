"""`kafka-reassign-partitions`: move replicas between brokers and between their directories."""

import json
from collections.abc import Mapping, Sequence
from typing import Final

import click

from spindle.cli.tools.bootstrap import connect, properties_of
from spindle.cli.tools.command import ToolCommand
from spindle.cli.tools.failures import TERSE, ToolFailed, UsageError, executing
from spindle.cli.tools.json_file import COMMAND, read_file
from spindle.cli.tools.options import (
    BOOTSTRAP_CONTROLLER,
    BOOTSTRAP_SERVER,
    COMMAND_CONFIG,
    JSON,
    Declaration,
    Option,
    Options,
)
from spindle.cli.tools.reassignment_moves import (
    active_moves,
    await_deletions,
    move_lines,
    start_moves,
)
from spindle.cli.tools.reassignment_plan import check_plan, parse_plan, parse_topics
from spindle.cli.tools.reassignment_throttles import clear_throttles, set_throttles
from spindle.client.admin.partitions import (
    Reassignment,
    alter_reassignments,
    list_reassignments,
)
from spindle.client.admin.refusals import refusal_text
from spindle.client.blocking.client import WireClient
from spindle.common.errors import ApiError
from spindle.common.ids import TopicPartition
from spindle.operations.reassignment import (
    Plan,
    ReplicaPlaces,
    current_replicas,
    places_of,
    plan_json,
)

_ACTIONS: Final = ("generate", "execute", "verify", "cancel", "list")
_REQUIRED: Final = {
    "generate": ("topics-to-move-json-file", "broker-list"),
    "execute": ("reassignment-json-file",),
    "verify": ("reassignment-json-file",),
    "cancel": ("reassignment-json-file",),
    "list": (),
}
_ALLOWED: Final = {
    "generate": ("disable-rack-aware",),
    "execute": (
        "additional",
        "disallow-replication-factor-change",
        "throttle",
        "replica-alter-log-dirs-throttle",
        "timeout",
    ),
    "verify": ("preserve-throttles",),
    "cancel": ("preserve-throttles", "timeout"),
    "list": ("json",),
}
_ALWAYS: Final = ("bootstrap-server", "bootstrap-controller", "command-config")
_TIMEOUT_MS: Final = 10_000

DECLARATION: Final = Declaration(
    "Move replicas between brokers.",
    [
        BOOTSTRAP_SERVER,
        COMMAND_CONFIG,
        JSON,
        BOOTSTRAP_CONTROLLER,
        Option("list", "Show the running reassignments."),
        Option("generate", "Propose a plan for topics and brokers; nothing is changed."),
        Option("execute", "Begin the changes of a plan."),
        Option("verify", "Show the progress of a plan; remove throttles when it is done."),
        Option("cancel", "Cancel the changes of a plan."),
        Option("reassignment-json-file", "The plan.", "file"),
        Option("topics-to-move-json-file", 'Topics: {"topics": [{"topic": "t"}]}.', "file"),
        Option("broker-list", "Brokers to spread the topics over.", "1,2,..."),
        Option("disable-rack-aware", "Ignore racks."),
        Option("additional", "Begin even if other reassignments are running."),
        Option(
            "disallow-replication-factor-change",
            "Refuse to change the number of replicas of a partition.",
        ),
        Option("preserve-throttles", "Leave throttles as they are."),
        Option("throttle", "Bytes per second between brokers.", "rate"),
        Option("replica-alter-log-dirs-throttle", "Bytes per second between directories.", "rate"),
        Option("timeout", "Time limit for moves to begin, 10000 by default.", "ms"),
    ],
    examples=(
        "spindle kafka reassign-partitions --reassignment-json-file plan.json --execute",
        "spindle kafka reassign-partitions --reassignment-json-file plan.json --verify",
    ),
)


def _run(options: Options) -> None:
    action = _action(options)
    with (
        executing(),
        connect(
            options.one("bootstrap-server"),
            properties_of(options.one("command-config")),
            controllers=options.one("bootstrap-controller"),
            client_id="reassign-partitions-tool",
        ) as client,
    ):
        _act(action, options, client)


def _action(options: Options) -> str:
    names = ", ".join(f"--{name}" for name in _ACTIONS)
    options.exactly_one(f"Command must include exactly one action: {names}", *_ACTIONS)
    action = next(name for name in _ACTIONS if options.has(name))
    options.require_servers()
    options.require(*_REQUIRED[action])
    fitting = (action, *_ALWAYS, *_REQUIRED[action], *_ALLOWED[action])
    for given in options.given:
        if given.name not in fitting:
            raise UsageError(
                f'Option "[{given.name}]" can\'t be used with action "[{action}]"',
                f"--{given.name} cannot be used with --{action}",
            )
    return action


def _act(action: str, options: Options, client: WireClient) -> None:
    if action == "list":
        _list(options, client)
    elif action == "generate":
        _generate(options, client)
    else:
        plan = parse_plan(read_file(options.text("reassignment-json-file")))
        if action == "execute":
            _execute(options, client, plan)
        elif action == "verify":
            _verify(options, client, plan)
        else:
            _cancel(options, client, plan)


def _list(options: Options, client: WireClient) -> None:
    reassignments = list_reassignments(client)
    if options.has("json"):
        document = [
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "replicas": list(reassignment.replicas),
                "adding": list(reassignment.adding),
                "removing": list(reassignment.removing),
            }
            for partition, reassignment in reassignments.items()
        ]
        click.echo(json.dumps(document))
        return
    click.echo("\n".join(list_lines(reassignments)))


def list_lines(found: Mapping[TopicPartition, Reassignment]) -> list[str]:
    """Return the lines about the running reassignments."""
    if not found:
        return ["No partition reassignments found."]
    lines = ["Current partition reassignments:"]
    for partition, reassignment in found.items():
        adding = f" adding: {_ids(reassignment.adding)}." if reassignment.adding else ""
        removing = f" removing: {_ids(reassignment.removing)}." if reassignment.removing else ""
        lines.append(f"{partition}: replicas: {_ids(reassignment.replicas)}.{adding}{removing}")
    return lines


def _generate(options: Options, client: WireClient) -> None:
    topics = parse_topics(read_file(options.text("topics-to-move-json-file")))
    brokers = _broker_ids(options.text("broker-list"))
    places = places_of(client)
    current = current_replicas(client, topics)
    known = client.current_view(()).brokers
    racks = {} if options.has("disable-rack-aware") else {b: known[b].rack for b in known}
    proposed = spread(current, [b for b in brokers if b in known], racks)
    text = plan_json(current, places.directories)
    click.echo(f"Current partition replica assignment\n{text}\n")
    click.echo(f"Proposed partition reassignment configuration\n{plan_json(proposed, {})}")


def spread(
    current: Mapping[TopicPartition, Sequence[int]],
    brokers: Sequence[int],
    racks: Mapping[int, str | None],
) -> dict[TopicPartition, tuple[int, ...]]:
    """Assign the same number of replicas to brokers round-robin, adjacent ones to different racks.

    Raises:
        ToolFailed: there are fewer brokers than replicas, or only some have a rack.
    """
    with_rack = [broker for broker in brokers if racks.get(broker) is not None]
    if with_rack and len(with_rack) < len(brokers):
        raise ToolFailed(
            "Not all brokers have rack information. Add --disable-rack-aware in command line to "
            "make replica assignment without rack information."
        )
    by_rack: dict[str, list[int]] = {}
    for broker in brokers:
        by_rack.setdefault(racks.get(broker) or "", []).append(broker)
    longest = max((len(group) for group in by_rack.values()), default=0)
    ring = [
        group[number]
        for number in range(longest)
        for group in by_rack.values()
        if number < len(group)
    ]
    proposed = {}
    for start, (partition, replicas) in enumerate(sorted(current.items())):
        if len(replicas) > len(ring):
            raise ToolFailed(
                f"Replication factor: {len(replicas)} larger than available brokers: {len(ring)}.",
                "org.apache.kafka.common.errors.InvalidReplicationFactorException",
            )
        proposed[partition] = tuple(ring[(start + n) % len(ring)] for n in range(len(replicas)))
    return proposed


def _broker_ids(text: str) -> list[int]:
    try:
        brokers = [int(part) for part in text.split(",")]
    except ValueError:
        raise ToolFailed(f"--broker-list {text}: want numbers separated by commas") from None
    twice = sorted({broker for broker in brokers if brokers.count(broker) > 1})
    if twice:
        raise ToolFailed(f"Broker list contains duplicate entries: {twice}", COMMAND)
    return brokers


def _execute(options: Options, client: WireClient, plan: Plan) -> None:
    check_plan(plan)
    under_way = list_reassignments(client)
    if under_way and not options.has("additional"):
        raise ToolFailed(
            "Cannot execute because there is an existing partition assignment.  Use --additional "
            "to override this and create a new partition assignment in addition to the existing "
            "one. The --additional flag can also be used to change the throttle by resubmitting "
            "the current reassignment.",
            TERSE,
        )
    known = client.current_view(()).brokers
    for broker in sorted({broker for brokers in plan.replicas.values() for broker in brokers}):
        if broker not in known:
            raise ToolFailed(f"Unknown broker id {broker}", COMMAND)
    current = _current(client, plan)
    text = plan_json(current, places_of(client).directories)
    click.echo(
        f"Current partition replica assignment\n\n{text}\n\n"
        "Save this to use as the --reassignment-json-file option during rollback"
    )
    await_deletions(client, plan)
    set_throttles(
        client,
        plan,
        current,
        between_brokers=options.integer("throttle"),
        between_directories=options.integer("replica-alter-log-dirs-throttle"),
    )
    outcome = alter_reassignments(
        client,
        plan.replicas,
        may_change_replication_factor=not options.has("disallow-replication-factor-change"),
    )
    _raise_refused("reassigning", outcome)
    names = ",".join(map(str, plan.replicas))
    click.echo(f"Successfully started partition reassignment{_plural(plan.replicas)} for {names}")
    start_moves(client, plan.directories, _timeout_ms(options))


def _current(client: WireClient, plan: Plan) -> dict[TopicPartition, tuple[int, ...]]:
    replicas = current_replicas(client, sorted({partition.topic for partition in plan.replicas}))
    missing = [str(partition) for partition in plan.replicas if partition not in replicas]
    if missing:
        raise ToolFailed(f"Unable to find partition: {', '.join(missing)}")
    return {partition: replicas[partition] for partition in plan.replicas}


def _verify(options: Options, client: WireClient, plan: Plan) -> None:
    under_way = list_reassignments(client)
    others = sorted({p.topic for p in plan.replicas if p not in under_way})
    replicas = current_replicas(client, others, missing_ok=True)
    click.echo("\n".join(status_lines(plan, under_way, replicas)))
    places = places_of(client) if plan.directories else ReplicaPlaces({}, {})
    click.echo("\n".join(move_lines(plan.directories, places)))
    moving = active_moves(plan.directories, places)
    if not under_way and not moving and not options.has("preserve-throttles"):
        clear_throttles(client, plan)


def status_lines(
    plan: Plan,
    under_way: Mapping[TopicPartition, Reassignment],
    found: Mapping[TopicPartition, Sequence[int]],
) -> list[str]:
    """Return a line about the progress of each partition."""
    lines = ["Status of partition reassignment:"]
    for partition, target in plan.replicas.items():
        now = found.get(partition, ())
        if partition in under_way:
            lines.append(f"Reassignment of partition {partition} is still in progress.")
        elif tuple(now) == target:
            lines.append(f"Reassignment of partition {partition} is completed.")
        else:
            lines.append(
                f"There is no active reassignment of partition {partition}, but replica set is "
                f"{_ids(now)} rather than {_ids(target)}."
            )
    return lines


def _cancel(options: Options, client: WireClient, plan: Plan) -> None:
    under_way = list_reassignments(client, list(plan.replicas))
    if under_way:
        _raise_refused("cancelling", alter_reassignments(client, dict.fromkeys(under_way)))
        names = ",".join(map(str, under_way))
        click.echo(
            f"Successfully cancelled partition reassignment{_plural(under_way)} for: {names}"
        )
    else:
        click.echo("None of the specified partition reassignments are active.")
    moving = active_moves(plan.directories, places_of(client)) if plan.directories else {}
    if moving:
        start_moves(client, moving, _timeout_ms(options))
    else:
        click.echo("None of the specified partition moves are active.", nl=False)
    if not options.has("preserve-throttles"):
        clear_throttles(client, plan)


def _raise_refused(verb: str, outcome: Mapping[TopicPartition, ApiError | None]) -> None:
    refused = [f"{p}: {refusal_text(error)}" for p, error in sorted(outcome.items()) if error]
    if refused:
        raise ToolFailed("\n".join((f"Error {verb} partition(s):", *refused)), TERSE)


def _timeout_ms(options: Options) -> int:
    timeout_ms = options.integer("timeout")
    return _TIMEOUT_MS if timeout_ms is None else timeout_ms


def _plural(things: Mapping[TopicPartition, object]) -> str:
    return "" if len(things) == 1 else "s"


def _ids(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers))


reassign = ToolCommand("reassign-partitions", DECLARATION, _run)
