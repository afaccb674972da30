"""A cluster's status as a screen for people and as a document for programs."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from spindle.cli.status.cluster_status import Problem, Status
from spindle.cli.table import table_lines
from spindle.client.admin.cluster import QuorumDescription
from spindle.client.disks import DiskView
from spindle.common.text import count_noun, join_first, size_text
from spindle.operations.throttles import BETWEEN_BROKERS, BETWEEN_DIRECTORIES

_MAX_SHOWN: Final = 10
_MAX_NAMED: Final = 5
_COUNTED_ONLY: Final = (
    "partitions without a leader",
    "under-replicated partitions",
    "fenced brokers",
)
_SINGULARS: Final = (
    ("brokers that refuse", "broker that refuses"),
    ("brokers", "broker"),
    ("devices", "device"),
    ("directories", "directory"),
    ("partitions", "partition"),
    ("replicas", "replica"),
)


def status_lines(found: Status) -> list[str]:
    """Return the screen of `spindle status`."""
    head = ("BROKER", "ADDRESS", "RACK", "STATE", "REPLICAS", "LEADS", "DIRECTORIES", "FREE")
    replicas = [view for _, view in found.partitions()]
    rows = [
        (
            str(node.node_id),
            f"{node.host}:{node.port}",
            node.rack or "-",
            "fenced" if node.is_fenced else "serving",
            str(sum(node.node_id in replica.replicas for replica in replicas)),
            str(sum(node.node_id == replica.leader for replica in replicas)),
            _directories_text(found.disks_of(node.node_id)),
            _free_text(found.disks_of(node.node_id)),
        )
        for node in found.cluster.nodes
    ]
    problems = found.problems()
    shown = [problem.text for problem in problems if problem.kind not in _COUNTED_ONLY]
    more = len(shown) - _MAX_SHOWN
    return [
        f"cluster     {found.cluster.cluster_id}",
        f"controller  {_quorum_text(found.quorum)}",
        f"topics      {len(found.view.topics)} with {count_noun(len(replicas), 'partition')}",
        f"attention   {_attention(problems)}",
        *(f"            {text}" for text in shown[:_MAX_SHOWN]),
        *([f"            and {more} more (--json shows all)"] if more > 0 else []),
        *_explanations(found),
        *_operation_lines(found),
        "",
        *table_lines(head, rows),
    ]


def _quorum_text(quorum: QuorumDescription | str) -> str:
    if isinstance(quorum, str):
        return f"unknown: {quorum}"
    voters = ", ".join(str(voter.node_id) for voter in quorum.voters)
    return f"{quorum.leader_id} leads in epoch {quorum.leader_epoch}, voters {voters}"


def _operation_lines(found: Status) -> list[str]:
    """Return lines about cordons, moves and throttles."""
    cordoned = sum(
        bool(disk.cordons) for node in found.cluster.nodes for disk in found.disks_of(node.node_id)
    )
    return [
        *([f"cordoned    {count_noun(cordoned, 'directory', 'directories')}"] if cordoned else []),
        *([f"moves       {_moves_text(found)}"] if found.reassigned or found.moving else []),
        *(_throttle_lines(found.throttled) if found.throttled else []),
    ]


def _moves_text(found: Status) -> str:
    counts = {"brokers": len(found.reassigned), "directories": len(found.moving)}
    return ", ".join(f"{count} between {what}" for what, count in counts.items() if count)


def _throttle_lines(brokers: Sequence[int]) -> Iterator[str]:
    """Yield commands that remove throttles of ended moves."""
    indent = " " * 12
    noun, verb = ("broker", "has") if len(brokers) == 1 else ("brokers", "have")
    names = join_first(brokers, _MAX_NAMED)
    yield f"throttles   {noun} {names} {verb} throttles for moves, but nothing moves"
    yield f"{indent}If no command that moves replicas runs, give the one that was killed again, or:"
    keys = " ".join((*BETWEEN_BROKERS, *BETWEEN_DIRECTORIES))
    yield f"{indent}spindle configs unset broker {brokers[0]} {keys}"


def _attention(problems: Sequence[Problem]) -> str:
    counts: dict[str, int] = {}
    for problem in problems:
        counts[problem.kind] = counts.get(problem.kind, 0) + 1
    return ", ".join(_counted(kind, count) for kind, count in counts.items()) or "nothing"


def _counted(kind: str, count: int) -> str:
    """Return a kind of problem with its count, such as `1 fenced broker`."""
    if kind.endswith("quorum"):
        return kind  # there is only one
    if count == 1:
        for plural, singular in _SINGULARS:
            kind = kind.replace(plural, singular)
    return f"{count} {kind}"


def _explanations(found: Status) -> Iterator[str]:
    """Yield explanations of fenced brokers and leaderless partitions."""
    indent = " " * 12
    fenced = [str(node.node_id) for node in found.cluster.nodes if node.is_fenced]
    if fenced:
        noun, verb = ("broker", "has") if len(fenced) == 1 else ("brokers", "have")
        who = f"{noun} {join_first(fenced, _MAX_NAMED)} {verb}"
        yield f"{indent}{who} no session with the controller: stopped, cut off, or starting."
        yield (
            f"{indent}A broker that restarts after a kill registers when its old session ends: "
            "broker.session.timeout.ms, 9 s by default."
        )
    on_lost_disks = found.leaderless_on_lost_disks
    if on_lost_disks:
        brokers = sorted({node_id for replicas in on_lost_disks.values() for node_id in replicas})
        noun = "broker" if len(brokers) == 1 else "brokers"
        partitions, names = (join_first(e, _MAX_NAMED) for e in (list(on_lost_disks), brokers))
        yield (
            f"{indent}{partitions}: {noun} {names} would lead, "
            "but the replica is on no directory that is online; "
            "bring its disk back, then run `spindle disks online`."
        )
    waiting = [where for where in found.leaderless if where not in on_lost_disks]
    if waiting:
        yield (
            f"{indent}{join_first(waiting, _MAX_NAMED)}: a leader is elected when a "
            "broker returns that has all records or was the last leader."
        )


def _directories_text(disks: Sequence[DiskView]) -> str:
    if not disks:
        return "-"
    offline = sum(disk.failure is not None for disk in disks)
    return f"{len(disks)}, {offline} offline" if offline else str(len(disks))


def _free_text(disks: Sequence[DiskView]) -> str:
    """Return the free bytes of the fullest directory, which limits the broker first."""
    known = [disk.usable_bytes for disk in disks if disk.failure is None and disk.usable_bytes >= 0]
    return size_text(min(known)) if known else "-"


def status_document(found: Status) -> dict[str, Any]:
    """Return the same facts as a JSON document."""
    quorum = None if isinstance(found.quorum, str) else found.quorum
    replicas = [view for _, view in found.partitions()]
    return {
        "clusterId": found.cluster.cluster_id,
        "controllerId": quorum.leader_id if quorum else None,
        "controllerEpoch": quorum.leader_epoch if quorum else None,
        "voters": [voter.node_id for voter in quorum.voters] if quorum else None,
        "topics": len(found.view.topics),
        "partitions": len(replicas),
        "problems": [problem._asdict() for problem in found.problems()],
        "partitionsWithoutLeader": list(map(str, found.leaderless)),
        "movingReplicas": list(map(str, found.moving)),
        "reassignedPartitions": list(map(str, found.reassigned)),
        "throttledBrokersWithoutMoves": list(found.throttled),
        "underReplicatedPartitions": list(map(str, found.under_replicated)),
        "brokers": [
            {
                "id": node.node_id,
                "host": node.host,
                "port": node.port,
                "rack": node.rack,
                "fenced": node.is_fenced,
                "replicas": sum(node.node_id in replica.replicas for replica in replicas),
                "leads": sum(node.node_id == replica.leader for replica in replicas),
                "offlineDirectories": [
                    disk.path for disk in found.disks_of(node.node_id) if disk.failure is not None
                ],
                "cordonedDirectories": [
                    disk.path for disk in found.disks_of(node.node_id) if disk.cordons
                ],
            }
            for node in found.cluster.nodes
        ],
    }
