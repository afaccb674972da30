"""`spindle status`: the cluster on one screen, what needs attention, and notifications of it."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import click
from click.core import ParameterSource

from spindle.cli.cluster_command import cluster_command
from spindle.cli.disks.state_text import hangs, health_text, silence_text
from spindle.cli.disks.survey import BrokerReport, Survey
from spindle.cli.examples import examples
from spindle.cli.notification import Notifier, Targets, changes_of
from spindle.cli.numbers import FiniteRange, WholeRange
from spindle.cli.table import table_lines
from spindle.cli.tools.failures import FAILURES, failure
from spindle.client.admin.cluster import (
    ClusterDescription,
    QuorumDescription,
    describe_brokers,
    describe_quorum,
)
from spindle.client.cluster import ClusterView, PartitionView
from spindle.client.disks import DiskView
from spindle.client.wire.cluster import WireClient
from spindle.common.counted import counted
from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicPartition
from spindle.common.printable import printable
from spindle.common.sizes import size_text

NEEDS_ATTENTION: Final = 3
"""The exit code if something needs attention; 1 is that of a command that could not look."""
FULL: Final = 0.9
"""The used share of a file system above which a directory needs attention."""
_MAX_SHOWN: Final = 10
_MAX_NAMED: Final = 5


class Problem(NamedTuple):
    """Something that needs attention. Its key stays the same while it lasts.

    Attributes:
        kind: the screen shows the number of problems of each kind.
        broker_id: the broker that reported it; None if it came from the metadata.
    """

    key: str
    kind: str
    text: str
    broker_id: int | None = None


class Status(NamedTuple):
    """The answers of the cluster.

    Attributes:
        quorum: the description, or the error of the request.
        reports: the directories of each broker, or the error of its request.
    """

    cluster: ClusterDescription
    quorum: QuorumDescription | str
    view: ClusterView
    reports: Sequence[BrokerReport]

    def partitions(self) -> Iterator[tuple[TopicPartition, PartitionView]]:
        """Yield all partitions."""
        for topic in self.view.topics.values():
            for number, each in topic.partitions.items():
                yield TopicPartition(topic.name, number), each

    def disks_of(self, node_id: int) -> Sequence[DiskView]:
        """Return the directories of a broker; empty if it did not answer."""
        for report in self.reports:
            if report.node.node_id == node_id and report.disks is not None:
                return report.disks.disks
        return ()

    @property
    def moving(self) -> list[TopicPartition]:
        """The replicas that move between directories of their brokers, a partition for each."""
        return [
            each.partition
            for report in self.reports
            if report.disks is not None
            for each in report.disks.moves
        ]

    @property
    def leaderless(self) -> list[TopicPartition]:
        """The partitions that no live broker leads."""
        live = {each.node_id for each in self.cluster.nodes if not each.is_fenced}
        return [where for where, each in self.partitions() if each.leader not in live]

    @property
    def leaderless_on_lost_disks(self) -> dict[TopicPartition, tuple[int, ...]]:
        """The partitions without a leader whose in-sync brokers all run, but lack the replica.

        Its log directory is offline, or was replaced. The values are those brokers.
        """
        live = {each.node_id for each in self.cluster.nodes if not each.is_fenced}
        return {
            where: each.isr
            for where, each in self.partitions()
            if each.leader not in live
            and each.isr
            and live.intersection(each.offline_replicas).issuperset(each.isr)
        }

    @property
    def under_replicated(self) -> list[TopicPartition]:
        """The partitions with replicas that are not in sync."""
        return [where for where, each in self.partitions() if len(each.isr) < len(each.replicas)]

    def problems(self) -> list[Problem]:
        """Return everything that needs attention, the worst first.

        Cordons and moves are intended, so they are no problems.
        """
        found = [
            Problem(f"leaderless {where}", "partitions without a leader", f"{where} has no leader")
            for where in self.leaderless
        ]
        for report in self.reports:
            found += _broker_problems(report)
        if isinstance(self.quorum, str):
            found.append(
                Problem(
                    "quorum", "unknown quorum", f"the quorum cannot be described: {self.quorum}"
                )
            )
        found += [
            Problem(
                f"under-replicated {where}",
                "under-replicated partitions",
                f"{where} has replicas that are not in sync",
            )
            for where in self.under_replicated
        ]
        return found


def _broker_problems(report: BrokerReport) -> Iterator[Problem]:
    node = report.node
    name = f"broker {node.node_id}"
    if node.is_fenced:
        yield Problem(f"fenced {node.node_id}", "fenced brokers", f"{name} is fenced")
    if report.disks is None:
        text = f"{name}: {silence_text(report)}"
        kind = "brokers that refuse access" if report.is_refused else "unresponsive brokers"
        yield Problem(f"silent {node.node_id}", kind, text)
        return
    for disk in report.disks.disks:
        for each in _disk_problems(disk, f"{node.node_id}:{disk.path}"):
            yield each._replace(broker_id=node.node_id)


def _disk_problems(disk: DiskView, place: str) -> Iterator[Problem]:
    health = health_text(disk)
    if health:
        yield Problem(f"device {place}", "devices with errors", f"{place} on {health}")
    if disk.failure is not None:
        text = f"{place} is offline: {disk.failure}"
        yield Problem(f"offline {place}", "offline directories", text)
        return
    if hangs(disk):
        yield Problem(f"hangs {place}", "hanging directories", f"{place} does not answer")
    if disk.total_bytes > 0 and disk.used_bytes > FULL * disk.total_bytes:
        text = f"{place} is {disk.used_bytes / disk.total_bytes:.1%} full"
        text += f", {size_text(disk.usable_bytes)} are free"
        yield Problem(f"full {place}", f"directories above {FULL:.0%}", text)
    if disk.stray_count:
        text = (
            f"{place} has {counted(disk.stray_count, 'stray log')} with "
            f"{size_text(disk.stray_bytes)}: the metadata places their replicas elsewhere; look "
            "at the folders with the suffix -stray, and delete what you do not need"
        )
        yield Problem(f"stray {place}", "directories with stray logs", text)


@click.command(
    "status",
    epilog=examples(
        "spindle status -b 127.0.0.1:9092",
        "spindle status --json",
        "spindle status --watch --notify-url https://example.org/hook",
    ),
)
@click.option("--watch", is_flag=True, help="Repeat until Ctrl-C, and print the changes.")
@click.option(
    "--interval",
    "interval_s",
    type=FiniteRange(min=0.1, max=86_400),
    default=10.0,
    show_default=True,
    metavar="S",
    help="Seconds between checks.",
)
@click.option("--count", type=WholeRange(min=1), metavar="N", help="Stop after N checks.")
@click.option(
    "--notify-command",
    metavar="COMMAND",
    help="With --watch, run this in a shell when problems come or go, with JSON on its input.",
)
@click.option(
    "--notify-url",
    metavar="URL",
    help="With --watch, POST the same JSON to this http or https address.",
)
@cluster_command
def status(
    client: WireClient,
    as_json: bool,
    watch: bool,
    interval_s: float,
    count: int | None,
    notify_command: str | None,
    notify_url: str | None,
) -> int:
    """Show brokers, log directories and partitions, and what needs attention.

    The exit code is 0 if nothing needs attention, 3 if something does, 1 if the cluster could not
    be asked, and 2 if the command line is wrong. Cordoned directories and moves do not count. With
    --watch, a line is printed for each problem that appears or ends, and a notification can be
    sent. A target that fails or hangs receives the changes later, and never delays the next check.
    """
    targets = Targets.of(notify_command, notify_url)
    if not watch:
        interval = click.get_current_context().get_parameter_source("interval_s")
        if targets.any_given or count is not None or interval is ParameterSource.COMMANDLINE:
            raise click.UsageError(
                "--interval, --count, --notify-command and --notify-url need --watch"
            )
        with Survey(client) as survey:
            found = take_status(client, survey)
        click.echo(
            json.dumps(status_document(found)) if as_json else "\n".join(status_lines(found))
        )
        return NEEDS_ATTENTION if found.problems() else 0
    return _watch(client, targets, interval_s, count, as_json=as_json)


def take_status(client: WireClient, survey: Survey) -> Status:
    """Ask the cluster.

    Raises:
        ApiError, ClientError: the cluster could not be asked for its brokers and partitions.
    """
    client.forget_metadata()
    return Status(
        describe_brokers(client), _quorum(client), client.metadata(), tuple(survey.take())
    )


def _quorum(client: WireClient) -> QuorumDescription | str:
    try:
        return describe_quorum(client)
    except ApiError as error:
        reason = failure(error).plainly
        if error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            login = client.settings.security.login
            name = getattr(login, "username", None)
            user = f"User:{name}" if name else "this user"
            reason = f"{user} lacks DESCRIBE on resource Cluster:kafka-cluster ({reason})"
        return reason


def _watch(
    client: WireClient, targets: Targets, interval_s: float, count: int | None, *, as_json: bool
) -> int:
    """Check the cluster at intervals and print changes; return the exit code of the last check."""
    before: Mapping[str, Problem] = {}
    code, checks = 0, 0
    with Survey(client) as survey, Notifier(targets) as notifier:
        try:
            while True:
                due_s = time.monotonic() + interval_s
                try:
                    found = take_status(client, survey)
                    now = _with_unconfirmed(found, before)
                    cluster_id = found.cluster.cluster_id
                except FAILURES as error:
                    text = f"the cluster cannot be asked: {failure(error).plainly}"
                    # The earlier problems may have ended or not, so they stay.
                    now = {**before, "unknown": Problem("unknown", "unknown cluster", text)}
                    cluster_id = ""
                code = NEEDS_ATTENTION if now else 0
                document = changes_of(before, now, cluster_id, time.time_ns() // 1_000_000)
                if document is not None or not checks:
                    _print_changes(document, as_json=as_json)
                if document is not None:
                    notifier.send(document)
                for line in notifier.failures():
                    click.echo(line, err=True)
                before, checks = now, checks + 1
                if checks == count:
                    return code
                time.sleep(max(0.0, due_s - time.monotonic()))
        except KeyboardInterrupt:
            return code


def _with_unconfirmed(found: Status, before: Mapping[str, Problem]) -> dict[str, Problem]:
    """Return the present problems, and earlier ones of brokers that do not respond now."""
    silent = {each.node.node_id for each in found.reports if each.disks is None}
    kept = {key: each for key, each in before.items() if each.broker_id in silent}
    return {**kept, **{each.key: each for each in found.problems()}}


def _print_changes(document: Mapping[str, Any] | None, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(document or {"raised": [], "cleared": [], "problems": []}))
        return
    clock = time.strftime("%H:%M:%S")
    if document is None:
        click.echo(f"{clock}  nothing needs attention")
        return
    for sign, kind in (("+", "raised"), ("-", "cleared")):
        for each in document[kind]:
            click.echo(printable(f"{clock}  {sign} {each['text']}"))


def status_lines(found: Status) -> list[str]:
    """Return the screen of `spindle status`."""
    head = ("BROKER", "ADDRESS", "RACK", "STATE", "REPLICAS", "LEADS", "DIRECTORIES", "FREE")
    replicas = [each for _, each in found.partitions()]
    rows = [
        (
            str(node.node_id),
            f"{node.host}:{node.port}",
            node.rack or "-",
            "fenced" if node.is_fenced else "serving",
            str(sum(node.node_id in each.replicas for each in replicas)),
            str(sum(node.node_id == each.leader for each in replicas)),
            _directories_text(found.disks_of(node.node_id)),
            _free_text(found.disks_of(node.node_id)),
        )
        for node in found.cluster.nodes
    ]
    problems = found.problems()
    shown = [each.text for each in problems if each.kind not in _COUNTED_ONLY]
    more = len(shown) - _MAX_SHOWN
    return [
        f"cluster     {found.cluster.cluster_id}",
        f"controller  {_quorum_text(found.quorum)}",
        f"topics      {len(found.view.topics)} with {counted(len(replicas), 'partition')}",
        f"attention   {_attention(problems)}",
        *(f"            {text}" for text in shown[:_MAX_SHOWN]),
        *([f"            and {more} more (--json shows all)"] if more > 0 else []),
        *_explanations(found),
        *_operation_lines(found),
        "",
        *table_lines(head, rows),
    ]


_COUNTED_ONLY: Final = (
    "partitions without a leader",
    "under-replicated partitions",
    "fenced brokers",
)


def _quorum_text(quorum: QuorumDescription | str) -> str:
    if isinstance(quorum, str):
        return f"unknown: {quorum}"
    voters = ", ".join(str(voter.node_id) for voter in quorum.voters)
    return f"{quorum.leader_id} leads in epoch {quorum.leader_epoch}, voters {voters}"


def _operation_lines(found: Status) -> list[str]:
    """Return lines about cordons and moves."""
    cordoned = sum(
        bool(disk.cordons) for node in found.cluster.nodes for disk in found.disks_of(node.node_id)
    )
    return [
        *([f"cordoned    {counted(cordoned, 'directory', 'directories')}"] if cordoned else []),
        *([f"moves       {len(found.moving)} between directories"] if found.moving else []),
    ]


def _attention(problems: Sequence[Problem]) -> str:
    counts: dict[str, int] = {}
    for each in problems:
        counts[each.kind] = counts.get(each.kind, 0) + 1
    return ", ".join(f"{name}: {count}" for name, count in counts.items()) or "nothing"


def _explanations(found: Status) -> Iterator[str]:
    """Yield what fenced brokers and leaderless partitions wait for."""
    indent = " " * 12
    fenced = [str(node.node_id) for node in found.cluster.nodes if node.is_fenced]
    if fenced:
        noun, verb = ("broker", "has") if len(fenced) == 1 else ("brokers", "have")
        who = f"{noun} {_named(fenced)} {verb}"
        yield f"{indent}{who} no session with the controller: stopped, cut off, or starting."
        yield (
            f"{indent}A broker that restarts after a kill registers when its old session ends: "
            "broker.session.timeout.ms, 9 s by default."
        )
    on_lost_disks = found.leaderless_on_lost_disks
    if on_lost_disks:
        brokers = sorted({node_id for replicas in on_lost_disks.values() for node_id in replicas})
        noun = "broker" if len(brokers) == 1 else "brokers"
        yield (
            f"{indent}{_named(list(on_lost_disks))}: {noun} {_named(brokers)} would lead, "
            "but the replica is on no directory that is online; "
            "bring its disk back, then run `spindle disks readmit`."
        )
    waiting = [where for where in found.leaderless if where not in on_lost_disks]
    if waiting:
        yield (
            f"{indent}{_named(waiting)}: a leader is elected when a "
            "broker returns that has all records or was the last leader."
        )


def _named(names: Sequence[object]) -> str:
    more = len(names) - _MAX_NAMED
    shown = ", ".join(map(str, names[:_MAX_NAMED]))
    return f"{shown} and {more} more" if more > 0 else shown


def _directories_text(disks: Sequence[DiskView]) -> str:
    if not disks:
        return "-"
    offline = sum(each.failure is not None for each in disks)
    return f"{len(disks)}, {offline} offline" if offline else str(len(disks))


def _free_text(disks: Sequence[DiskView]) -> str:
    """Return the free bytes of the fullest directory, which limits the broker first."""
    known = [each.usable_bytes for each in disks if each.failure is None and each.usable_bytes >= 0]
    return size_text(min(known)) if known else "-"


def status_document(found: Status) -> dict[str, Any]:
    """Return the same facts as a JSON document."""
    quorum = None if isinstance(found.quorum, str) else found.quorum
    replicas = [each for _, each in found.partitions()]
    return {
        "clusterId": found.cluster.cluster_id,
        "controllerId": quorum.leader_id if quorum else None,
        "controllerEpoch": quorum.leader_epoch if quorum else None,
        "voters": [voter.node_id for voter in quorum.voters] if quorum else None,
        "topics": len(found.view.topics),
        "partitions": len(replicas),
        "problems": [each._asdict() for each in found.problems()],
        "partitionsWithoutLeader": list(map(str, found.leaderless)),
        "movingReplicas": list(map(str, found.moving)),
        "underReplicatedPartitions": list(map(str, found.under_replicated)),
        "brokers": [
            {
                "id": node.node_id,
                "host": node.host,
                "port": node.port,
                "rack": node.rack,
                "fenced": node.is_fenced,
                "replicas": sum(node.node_id in each.replicas for each in replicas),
                "leads": sum(node.node_id == each.leader for each in replicas),
                "offlineDirectories": [
                    each.path for each in found.disks_of(node.node_id) if each.failure is not None
                ],
                "cordonedDirectories": [
                    each.path for each in found.disks_of(node.node_id) if each.cordons
                ],
            }
            for node in found.cluster.nodes
        ],
    }
