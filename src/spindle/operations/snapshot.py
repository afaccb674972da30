"""Reads a running cluster into the planner's model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Final

from spindle.client.admin.cluster import ClusterNode, describe_brokers
from spindle.client.admin.partitions import list_reassignments
from spindle.client.admin.refusals import failure_text
from spindle.client.blocking.client import WireClient
from spindle.client.blocking.fan_out import ask_every_broker
from spindle.client.cluster_metadata import ClusterView
from spindle.client.log_dirs import LogDirView
from spindle.common.errors import ErrorCode
from spindle.common.ids import TopicPartition
from spindle.common.text import count_noun, join_first, size_text, span_text
from spindle.operations.deletions import BrokerSpace, OwnDeletions, space_of
from spindle.operations.directories import UNREADABLE
from spindle.operations.errors import OperationFailed, ReplicasMoving
from spindle.planner.model import BrokerModel, ClusterModel, DirectoryModel, PartitionModel

_MAX_NAMED: Final = 5
_FEW_BYTES: Final = 0.01
"""The share of a directory's capacity that is too small to matter for a plan."""
_OWN_SIZES: Final = "; `capacity_bytes` gives each its own size"


@dataclass(slots=True)
class ClusterSnapshot:
    """A cluster for the planner.

    Attributes:
        remarks: about brokers and directories with missing data.
        cluster_id: None if the cluster does not report it.
        silent: remarks about brokers that did not respond and topics that this user may not see.
        unexplained: directories of brokers that do not report deletions, in which more than
            `_FEW_BYTES` are neither replicas nor known to be deleted. They may be deleted replicas.
    """

    model: ClusterModel
    remarks: list[str] = field(default_factory=list)
    cluster_id: str | None = None
    unexplained: list[DirectoryModel] = field(default_factory=list)
    silent: list[str] = field(default_factory=list)


def read_snapshot(
    client: WireClient,
    capacity_bytes: int | None,
    *,
    is_for_plan: bool = True,
    own: OwnDeletions | None = None,
) -> ClusterSnapshot:
    """Read the brokers, partitions and log directories of a cluster.

    Args:
        capacity_bytes: of each directory, which then holds only replicas; None for the brokers'
            reports.
        is_for_plan: refuse moving replicas, and name a setting of plans in the remarks.
        own: the replicas that this execution moved away.

    Raises:
        ReplicasMoving: replicas are moving, so a plan would soon be wrong.
        OperationFailed: the responses contradict each other, or the replicas of a directory do not
            fit into the capacity.
        ApiError, ClientError: the cluster could not be asked.
    """
    nodes = describe_brokers(client).nodes
    under_way = list(list_reassignments(client))
    view = client.metadata()
    every_broker = ask_every_broker(client, nodes, space_of)
    spaces = {b: space for b, space in every_broker.items() if not isinstance(space, Exception)}
    answers: dict[int, Sequence[LogDirView] | str] = {
        broker: failure_text(space) if isinstance(space, Exception) else space.views
        for broker, space in every_broker.items()
    }
    if is_for_plan:
        moving = [partition for views in answers.values() for partition in copied_inside(views)]
        refuse_moving([*under_way, *moving])
    snapshot = snapshot_of(nodes, view, answers, capacity_bytes, spaces, own)
    if not is_for_plan:
        snapshot.remarks = [remark.removesuffix(_OWN_SIZES) for remark in snapshot.remarks]
    return snapshot


def copied_inside(views: Sequence[LogDirView] | str) -> list[TopicPartition]:
    """Return the replicas of a broker that move to another of its directories.

    A copy without a replica comes from a failed directory, and never completes.
    """
    if isinstance(views, str):
        return []
    replicas = [item for view in views for item in view.replicas.items()]
    held = {where for where, replica in replicas if not replica.is_future}
    return [where for where, replica in replicas if replica.is_future and where in held]


def refuse_moving(partitions: Sequence[TopicPartition]) -> None:
    """Refuse to plan while replicas move.

    Raises:
        ReplicasMoving: there is such a replica.
    """
    if not partitions:
        return
    topic_partitions = sorted(set(partitions))
    names = ", ".join(map(str, topic_partitions[:_MAX_NAMED]))
    raise ReplicasMoving(
        f"replicas of {count_noun(len(topic_partitions), 'partition')} are moving already "
        f"({names}): wait for "
        "their end, or cancel them, and plan again"
    )


def hidden_topics(
    view: ClusterView, answers: Mapping[int, Sequence[LogDirView] | str]
) -> list[str]:
    """Return the topics that brokers have replicas of and the metadata does not list.

    Metadata has only the topics that a user may describe; DescribeLogDirs has all. A topic that was
    just deleted is among them, too.
    """
    held = {
        where.topic
        for answer in answers.values()
        if not isinstance(answer, str)
        for log_dir in answer
        for where in log_dir.replicas
    }
    return sorted(held.difference(view.topics))


def _hidden_remarks(
    view: ClusterView, answers: Mapping[int, Sequence[LogDirView] | str]
) -> list[str]:
    hidden = hidden_topics(view, answers)
    if not hidden:
        return []
    return [
        f"brokers hold {count_noun(len(hidden), 'topic')} that the metadata does not show, such as "
        f"{hidden[0]}: their replicas are not planned. They were deleted a moment ago, or this "
        "user lacks DESCRIBE on them"
    ]


def snapshot_of(
    nodes: Sequence[ClusterNode],
    view: ClusterView,
    answers: Mapping[int, Sequence[LogDirView] | str],
    capacity_bytes: int | None,
    spaces: Mapping[int, BrokerSpace] | None = None,
    own: OwnDeletions | None = None,
) -> ClusterSnapshot:
    """Return the model of a cluster from the responses of its brokers.

    Args:
        answers: the log directories of each broker, or the reason why it did not respond.
        spaces: the space of deleted replicas, for brokers that responded.
        own: the replicas that this execution moved away.

    Raises:
        OperationFailed: the answers contradict each other, or the replicas of a directory do not
            fit into the capacity.
    """
    racks = {node.node_id: node.rack or None for node in nodes}
    replicas = [
        partition for topic in view.topics.values() for partition in topic.partitions.values()
    ]
    for partition in replicas:
        racks |= {broker: None for broker in partition.replicas if broker not in racks}
    directories: list[DirectoryModel] = []
    places: dict[tuple[int, TopicPartition], tuple[int, int]] = {}
    remarks = [] if capacity_bytes is not None else _shared_space(answers)
    unexplained: list[DirectoryModel] = []
    silent: list[str] = []
    for broker in sorted(racks):
        answer = answers.get(broker, "it is not running")
        if isinstance(answer, str):
            silent.append(f"broker {broker} does not report its directories: {answer}")
            answer = ()
        for log_dir in answer:
            for where, replica in log_dir.replicas.items():
                if replica.is_future:
                    continue
                places[broker, where] = (len(directories), replica.size_bytes)
            directory = _directory(broker, log_dir, capacity_bytes)
            space = (spaces or {}).get(broker)
            if space is not None and capacity_bytes is None:
                directory = _with_deletions(directory, log_dir, space, own or OwnDeletions())
                if space.deleted_bytes is None and _is_unexplained(directory, space.views):
                    unexplained.append(directory)
            directories.append(directory)
    partitions = _partitions(view, places, directories)
    if capacity_bytes is not None:
        _refuse_small_capacity(capacity_bytes, directories)
    silent += _hidden_remarks(view, answers)
    brokers = [BrokerModel(broker, rack) for broker, rack in sorted(racks.items())]
    try:
        model = ClusterModel(brokers, directories, partitions)
    except ValueError as error:
        raise OperationFailed(
            f"the answers of the brokers contradict each other: {error}"
        ) from None
    remarks += [*silent, *_deletion_remarks(directories)]
    return ClusterSnapshot(model, remarks, view.cluster_id, unexplained, silent)


def _refuse_small_capacity(capacity_bytes: int, directories: Sequence[DirectoryModel]) -> None:
    """Refuse a capacity below the used bytes of a directory: its fill would be above 100 %."""
    known = [directory for directory in directories if directory.path != UNREADABLE]
    largest = max(known, key=lambda each: each.used_bytes, default=None)
    if largest is not None and largest.used_bytes > capacity_bytes:
        raise OperationFailed(
            f"`capacity_bytes` is {size_text(capacity_bytes)}, less than the "
            f"{size_text(largest.used_bytes)} that the replicas of {largest} use; give at least "
            "this, or leave it out"
        )


def _directory(broker: int, found: LogDirView, capacity_bytes: int | None) -> DirectoryModel:
    held_bytes = _held_bytes(found)
    total, used = found.total_bytes, found.total_bytes - found.usable_bytes
    if capacity_bytes is not None:
        total, used = capacity_bytes, held_bytes
    elif min(found.total_bytes, found.usable_bytes) < 0:
        total, used = 0, held_bytes
    return DirectoryModel(
        broker,
        found.path,
        total,
        max(used, held_bytes),
        is_cordoned=found.is_cordoned,
        is_online=found.error is ErrorCode.NONE,
    )


def _with_deletions(
    model: DirectoryModel, found: LogDirView, space: BrokerSpace, own: OwnDeletions
) -> DirectoryModel:
    """Return a directory with its deleted bytes, at most the used bytes without replicas."""
    deleted = own.bytes_of((model.broker_id, model.path))
    if space.deleted_bytes is not None:
        deleted = space.deleted_bytes.get(model.path, 0)
    others = model.used_bytes - _held_bytes(found)
    return replace(
        model, deleted_bytes=min(deleted, others), deletion_delay_ms=max(0, space.delay_ms)
    )


def _is_unexplained(model: DirectoryModel, views: Sequence[LogDirView]) -> bool:
    if _seems_shared(views):
        return False
    others = model.kept_bytes - sum(_held_bytes(view) for view in views if view.path == model.path)
    return model.is_online and others > _FEW_BYTES * model.capacity_bytes > 0


def _deletion_remarks(directories: Sequence[DirectoryModel]) -> list[str]:
    log_directories = [directory for directory in directories if directory.deleted_bytes]
    if not log_directories:
        return []
    total = size_text(sum(directory.deleted_bytes for directory in log_directories))
    most = max(log_directories, key=lambda each: each.deleted_bytes)
    span = span_text(max(directory.deletion_delay_ms for directory in log_directories) / 1000)
    return [
        f"deleted files still use {total} ({size_text(most.deleted_bytes)} in {most}), for up to "
        f"{span} after their deletion: fills do not count them, and copies wait for that space"
    ]


def _held_bytes(found: LogDirView) -> int:
    return sum(replica.size_bytes for replica in found.replicas.values())


def _shared_space(answers: Mapping[int, Sequence[LogDirView] | str]) -> list[str]:
    """Return a remark if directories of a broker seem to be on one file system."""
    shared = [
        broker
        for broker, answer in sorted(answers.items())
        if not isinstance(answer, str) and _seems_shared(answer)
    ]
    if not shared:
        return []
    names = join_first(shared, _MAX_NAMED)
    return [
        f"log directories seem to share a file system (brokers {names}): the plan counts "
        f"the whole file system for each of them{_OWN_SIZES}"
    ]


def _seems_shared(answer: Sequence[LogDirView]) -> bool:
    """Return whether two directories report the space of one file system.

    Two disks of one size may be equally full. But one file system has the replicas of both, so if
    these exceed the used bytes, the file systems differ. Empty directories do not matter.
    """
    known = [log_dir for log_dir in answer if log_dir.total_bytes > 0 and log_dir.usable_bytes >= 0]
    return any(_is_one_space(one, other) for one, other in combinations(known, 2))


def _is_one_space(one: LogDirView, other: LogDirView) -> bool:
    if one.total_bytes != other.total_bytes:
        return False
    # Other programs write between the two reports of one file system.
    few_bytes = one.total_bytes // 1000
    used_bytes = one.total_bytes - min(one.usable_bytes, other.usable_bytes)
    return (
        abs(one.usable_bytes - other.usable_bytes) <= few_bytes
        and _held_bytes(one) + _held_bytes(other) <= used_bytes
        and used_bytes > _FEW_BYTES * one.total_bytes
    )


def _partitions(
    view: ClusterView,
    places: Mapping[tuple[int, TopicPartition], tuple[int, int]],
    directories: list[DirectoryModel],
) -> list[PartitionModel]:
    """Return the partitions; add a directory for replicas of a broker without a known directory."""
    unreadable: dict[int, int] = {}
    partitions = []
    for name, topic in sorted(view.topics.items()):
        for number, partition in topic.partitions.items():
            where = TopicPartition(name, number)
            known = {b: places[b, where] for b in partition.replicas if (b, where) in places}
            largest = max((size for _, size in known.values()), default=0)
            _, usual = known.get(partition.leader, (0, largest))
            for broker in partition.replicas:
                if broker not in known and broker not in unreadable:
                    unreadable[broker] = len(directories)
                    directories.append(DirectoryModel(broker, UNREADABLE, 0, 0, is_online=False))
            placed = [known.get(b) or (unreadable[b], usual) for b in partition.replicas]
            partitions.append(
                PartitionModel(
                    where,
                    tuple(place for place, _ in placed),
                    tuple(size for _, size in placed),
                    leader=partition.leader,
                )
            )
    for place in unreadable.values():
        held = sum(
            size
            for partition in partitions
            for at, size in zip(partition.directories, partition.size_bytes, strict=True)
            if at == place
        )
        directories[place] = replace(directories[place], used_bytes=held)
    return partitions
