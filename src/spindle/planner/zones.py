"""Zones: the parts of a cluster between which no replica can move.

With three racks and three replicas of every partition, each rack has all data, and a replica can
only move inside its rack. Each rack is then a zone, whose bytes no plan changes.
"""

from dataclasses import dataclass

from spindle.planner.layout import Layout


@dataclass(frozen=True, slots=True)
class Zone:
    """The directories of a zone, and the bytes that must move to them.

    Attributes:
        directories: the directories that the plan does not empty, in ascending order.
        forced_bytes: the replicas in directories of the zone that the plan empties.
    """

    directories: tuple[int, ...]
    forced_bytes: int


def find_zones(layout: Layout) -> list[Zone]:
    """Return the zones of a layout that have directories."""
    joined = _joined_racks(layout)
    directories: dict[int, list[int]] = {}
    for directory in layout.staying():
        directories.setdefault(joined[layout.rack[directory]], []).append(directory)
    forced: dict[int, int] = {}
    for directory in layout.leaving:
        zone = joined[layout.rack[directory]]
        forced[zone] = forced.get(zone, 0) + layout.replica_bytes[directory]
    return [Zone(tuple(directory), forced.get(zone, 0)) for zone, directory in directories.items()]


def _joined_racks(layout: Layout) -> list[int]:
    """Return a number for each rack; replicas can move between racks with the same number."""
    count = 1 + max(layout.rack, default=-1)
    parent = list(range(count))
    parts = count

    def root(rack: int) -> int:
        while parent[rack] != rack:
            rack = parent[rack]
        return rack

    for number in range(len(layout.cluster.partitions)):
        if parts == 1:
            break
        replicas = range(layout.first[number], layout.first[number + 1])
        racks = [layout.rack[layout.place[replica]] for replica in replicas]
        has_spare = len(set(racks)) < len(racks) or not layout.keeps_racks
        if len(set(racks)) == count and not has_spare:
            continue
        for other in range(count):
            if other in racks and not has_spare:
                continue
            for rack in racks:
                if root(rack) != root(other):
                    parent[root(rack)] = root(other)
                    parts -= 1
    return [root(rack) for rack in range(count)]
