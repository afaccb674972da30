"""Find the limit that excludes a replica from every directory, and a remedy."""

from collections.abc import Sequence
from typing import NoReturn

from spindle.common.ids import NO_LEADER
from spindle.common.text import count_noun, size_text
from spindle.planner.layout import Layout
from spindle.planner.limits import PlanLimits
from spindle.planner.plan import BindingLimit, Infeasible


def refuse_placement(layout: Layout, waiting: Sequence[int], limits: PlanLimits) -> NoReturn:
    """Explain why no directory can receive the first unplaced replica.

    Raises:
        Infeasible: always.
    """
    cluster, replica = layout.cluster, waiting[0]
    model = cluster.partitions[layout.partition[replica]]
    gone = frozenset(layout.leaving)
    left = [
        i
        for i, directory in enumerate(cluster.directories)
        if directory.is_online and i not in gone
    ]
    free = [number for number in left if layout.may_enter_broker(replica, number)]
    replicas = count_noun(len(model.directories), "replica")
    brokers = count_noun(len({layout.broker[number] for number in left}), "broker")
    if not free:
        _refuse_copying(layout, replica)
        _refuse_cordoned_siblings(layout, replica)
        raise Infeasible(
            BindingLimit.REPLICATION,
            model.name,
            f"it has {replicas}, and the plan can use {brokers}",
            f"add a broker, or lower the replication factor of topic {model.name.topic}",
        )
    open_ones = [number for number in free if layout.receives[number]]
    if not open_ones:
        names = ", ".join(str(cluster.directories[number]) for number in free[:5])
        raise Infeasible(
            BindingLimit.CORDONS,
            model.name,
            f"every directory that it could go to is cordoned or of unknown size: {names}",
            "uncordon one of them, or add a directory",
        )
    legal = [number for number in open_ones if layout.is_legal(replica, number)]
    if not legal:
        own = layout.rack[layout.place[replica]]
        racks = {broker.broker_id: broker.rack for broker in cluster.brokers}
        name = racks[layout.broker[layout.rack.index(own)]]
        raise Infeasible(
            BindingLimit.RACKS,
            model.name,
            f"it would be in fewer racks without its replica in rack {name}",
            f"add a directory or a broker to rack {name}, or allow fewer racks "
            "(`keeps_racks=False`)",
        )
    refuse_space(layout, waiting, legal, limits)


def _refuse_copying(layout: Layout, replica: int) -> None:
    """Refuse a replica that could move but cannot be copied.

    Raises:
        Infeasible: there is no leader, or its broker has room but cannot read it.
    """
    cluster, place = layout.cluster, layout.place[replica]
    model = cluster.partitions[layout.partition[replica]]
    if model.leader == NO_LEADER:
        raise Infeasible(
            BindingLimit.OFFLINE,
            model.name,
            "it has no leader, and other brokers copy only from leaders",
            "start the brokers that were in sync last, or elect another replica with an unclean "
            "election",
        )
    own = layout.broker[place]
    has_other = any(
        layout.receives[directory]
        for directory in cluster.directories_of(own)
        if directory != place
    )
    if has_other and not cluster.directories[place].is_online:
        raise Infeasible(
            BindingLimit.OFFLINE,
            model.name,
            f"broker {own} cannot read {cluster.directories[place].path}, so it copies nothing "
            "from there to its other directories, and all other brokers have a replica",
            "replace or remove the directory, or add a broker",
        )


def _refuse_cordoned_siblings(layout: Layout, replica: int) -> None:
    """Refuse a replica of a partition that another broker's cordons keep as it is.

    Raises:
        Infeasible: a sibling is on a broker whose directories are all cordoned.
    """
    siblings = layout.cordoned_siblings(replica)
    if siblings:
        brokers = sorted({layout.broker[layout.place[sibling]] for sibling in siblings})
        raise Infeasible(
            BindingLimit.CORDONS,
            layout.cluster.partitions[layout.partition[replica]].name,
            f"it has a replica on broker {brokers[0]}, whose log directories are all cordoned, and "
            "controllers refuse a reassignment that includes such a broker",
            f"uncordon a directory of broker {brokers[0]}, or drain that broker alone first",
        )


def refuse_offline(layout: Layout, replicas: Sequence[int]) -> None:
    """Refuse replicas that cannot be copied.

    Raises:
        Infeasible: all replicas of such a partition are offline.
    """
    cluster = layout.cluster
    for replica in replicas:
        model = cluster.partitions[layout.partition[replica]]
        if not any(cluster.directories[directory].is_online for directory in model.directories):
            raise Infeasible(
                BindingLimit.OFFLINE,
                model.name,
                "none of its replicas is online, so there is none to copy from",
                "start one of its brokers, bring its directory back into service (spindle disks "
                f"online), or delete topic {model.name.topic}",
            )


def refuse_space(
    layout: Layout, waiting: Sequence[int], directories: Sequence[int], limits: PlanLimits
) -> NoReturn:
    """Explain how much room is missing for the first unplaced replica.

    Args:
        directories: the directories that the replica may enter.

    Raises:
        Infeasible: always.
    """
    cluster, replica = layout.cluster, waiting[0]
    size, total = layout.size[replica], sum(layout.size[number] for number in waiting)
    capacity_bytes = int(total / limits.max_fill) + 1
    rooms = {
        directory: int(limits.max_fill * layout.capacity_bytes[directory]) - layout.used[directory]
        for directory in directories
    }
    best = max(rooms, key=lambda each: (rooms[each], -each))
    missing = size - rooms[best]
    for_all = ""
    if len(waiting) > 1:
        room = size_text(capacity_bytes)
        for_all = f" (for all {len(waiting)} replicas without a place add directories with {room})"
    raise Infeasible(
        BindingLimit.CAPACITY,
        cluster.partitions[layout.partition[replica]].name,
        f"it needs {size_text(size)}, and the directory with the most room, "
        f"{cluster.directories[best]}, has {size_text(max(0, rooms[best]))} below "
        f"{limits.max_fill:.0%} of its capacity",
        f"free or add {size_text(missing)} there{for_all}, or raise the highest fill (`max_fill`)",
    )
