"""The tables of `kafka-consumer-groups`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spindle.client.admin.groups import (
    GroupDescription,
    GroupListing,
    GroupOffset,
    MemberDescription,
)
from spindle.client.admin.refusals import exception_text
from spindle.common.errors import ApiError
from spindle.common.ids import TopicPartition

MISSING = "-"


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """A partition with a committed position or a member; None where unknown."""

    group_id: str
    partition: TopicPartition
    committed: GroupOffset | None
    end_offset: int | None
    member: MemberDescription | None

    @property
    def lag(self) -> int | None:
        """Records between the position and the end."""
        if self.committed is None or self.end_offset is None or self.committed.offset == -1:
            return None
        return self.end_offset - self.committed.offset


def partition_rows(
    group: GroupDescription,
    committed: Mapping[TopicPartition, GroupOffset],
    ends: Mapping[TopicPartition, int],
) -> list[PartitionRow]:
    """Return the rows: partitions with members first, by descending number of partitions of the
    member.
    """
    rows = []
    assigned: set[TopicPartition] = set()
    for member in sorted(group.members, key=lambda m: -len(m.assignment)):
        assigned.update(member.assignment)
        rows += [
            _row(group.group_id, p, committed, ends, member) for p in sorted(member.assignment)
        ]
    free = sorted(partition for partition in committed if partition not in assigned)
    return rows + [_row(group.group_id, p, committed, ends, None) for p in free]


def _row(
    group_id: str,
    partition: TopicPartition,
    committed: Mapping[TopicPartition, GroupOffset],
    ends: Mapping[TopicPartition, int],
    member: MemberDescription | None,
) -> PartitionRow:
    return PartitionRow(group_id, partition, committed.get(partition), ends.get(partition), member)


def offset_lines(rows: Sequence[PartitionRow], *, verbose: bool) -> list[str]:
    """Return the table of committed offsets, below an empty line."""
    head = ["GROUP", "TOPIC", "PARTITION"]
    head += ["LEADER-EPOCH"] if verbose else []
    head += ["CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID"]
    cells = [_offset_cells(row, verbose=verbose) for row in rows]
    numbers = [15] * (4 if verbose else 3)
    widths = [15, 15, 10, *numbers, 15, 15, 0]
    growing = (0, 1, len(widths) - 3, len(widths) - 2)
    for column in growing:
        widths[column] = max(widths[column], *(len(line[column]) for line in cells))
    return ["", *_aligned([head, *cells], widths)]


def _offset_cells(row: PartitionRow, *, verbose: bool) -> list[str]:
    committed, member = row.committed, row.member
    epoch = None if committed is None or committed.leader_epoch < 0 else committed.leader_epoch
    return [
        row.group_id,
        row.partition.topic,
        str(row.partition.partition),
        *([_shown(epoch)] if verbose else []),
        _shown(None if committed is None else committed.offset),
        _shown(row.end_offset),
        _shown(row.lag),
        MISSING if member is None else member.member_id,
        MISSING if member is None else member.host,
        MISSING if member is None else member.client_id,
    ]


def member_lines(group: GroupDescription, *, verbose: bool) -> list[str]:
    """Return the table of members, below an empty line."""
    with_instances = any(member.instance_id for member in group.members)
    is_mixed = {True, False} <= {member.uses_consumer_protocol for member in group.members}
    head = ["GROUP", "CONSUMER-ID"]
    head += ["GROUP-INSTANCE-ID"] if with_instances else []
    head += ["HOST", "CLIENT-ID", "#PARTITIONS"]
    widths = [15, 15, *([17] if with_instances else []), 15, 15, 15]
    growing = list(range(len(widths) - 1))
    if verbose:
        head += ["CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT"]
        head += ["UPGRADED"] if is_mixed else []
        growing += [len(widths) + 1, len(widths) + 3]
        widths += [15, 20, 15, 20, *([0] if is_mixed else [])]
    cells = [
        [
            *_member_cells(group, member, with_instances=with_instances, verbose=verbose),
            *([_upgraded(member)] if verbose and is_mixed else []),
        ]
        for member in group.members
    ]
    for column in growing:
        widths[column] = max([widths[column], *(len(line[column]) for line in cells)])
    return ["", *(f"{line} " for line in _aligned([head, *cells], widths))]


def _member_cells(
    group: GroupDescription, member: MemberDescription, *, with_instances: bool, verbose: bool
) -> list[str]:
    cells = [
        group.group_id,
        member.member_id,
        *([member.instance_id or ""] if with_instances else []),
        member.host,
        member.client_id,
        str(len(member.assignment)),
    ]
    if verbose:
        cells += [
            _shown(member.epoch),
            assignment_text(member.assignment) or MISSING,
            _shown(group.target_epoch),
            assignment_text(member.target or ()) or MISSING,
        ]
    return cells


def _upgraded(member: MemberDescription) -> str:
    """Return whether a member has changed over to the consumer protocol, as Java prints it."""
    known = member.uses_consumer_protocol
    return MISSING if known is None else str(known).lower()


def assignment_text(partitions: Iterable[TopicPartition]) -> str:
    """Return partitions as `topic:0,1;other:3`."""
    topics: dict[str, list[int]] = {}
    for name, partition in sorted(partitions):
        topics.setdefault(name, []).append(partition)
    return ";".join(f"{name}:{','.join(map(str, topic))}" for name, topic in topics.items())


def state_lines(group: GroupDescription, *, verbose: bool) -> list[str]:
    """Return the table of the state of the group, below an empty line."""
    at = group.coordinator
    coordinator = f"{at.host}:{at.port}  ({at.node_id})"
    head = ["GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE"]
    cells = [group.group_id, coordinator, group.assignor or MISSING, group.state]
    widths = [max(15, len(group.group_id)), max(25, len(coordinator)), 20, 20]
    if verbose:
        head += ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH"]
        cells += [_shown(group.epoch), _shown(group.target_epoch)]
        widths += [15, 25]
    head.append("#MEMBERS")
    cells.append(str(len(group.members)))
    return ["", *_aligned([head, cells], [*widths, 0])]


def listing_lines(
    groups: Sequence[GroupListing], *, with_type: bool, with_state: bool
) -> list[str]:
    """Return the table of groups."""
    width = max([15, *(len(group.group_id) for group in groups)]) + 10
    head = ["GROUP", *(["TYPE"] if with_type else []), *(["STATE"] if with_state else [])]
    cells = [
        [
            group.group_id,
            *([titled(group.group_type)] if with_type else []),
            *([titled(group.state)] if with_state else []),
        ]
        for group in groups
    ]
    return _aligned([head, *cells], [width, 20, 20])


def listing_json(group: GroupListing) -> dict[str, str]:
    """Return a group of a listing as a document."""
    return {
        "group": group.group_id,
        "type": group.group_type,
        "state": group.state,
        "protocol": group.protocol_type,
    }


def titled(text: str) -> str:
    """Return a type or state with a capital letter, in whatever case the broker writes it."""
    return text[:1].upper() + text[1:] if text else "Unknown"


def reset_lines(offsets: Mapping[str, Mapping[TopicPartition, int]]) -> list[str]:
    """Return the table of new offsets, below an empty line; only that line without groups."""
    if not offsets:
        return [""]
    rows = [["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"]]
    rows += [
        [group_id, name, str(partition), str(offset)]
        for group_id, entry in offsets.items()
        for (name, partition), offset in entry.items()
    ]
    groups = max(15, *(len(row[0]) for row in rows))
    topics = max(15, *(len(row[1]) for row in rows))
    return ["", *_aligned(rows, [groups, topics, 10, 0])]


def reset_json(offsets: Mapping[str, Mapping[TopicPartition, int]]) -> list[dict[str, Any]]:
    """Return the new offsets as a document."""
    return [
        {"group": group_id, "topic": topic, "partition": partition, "offset": offset}
        for group_id, entry in offsets.items()
        for (topic, partition), offset in entry.items()
    ]


def failed_deletion_lines(done: Sequence[str], failed: Mapping[str, ApiError]) -> list[str]:
    """Return what Kafka's tool prints where some groups were not deleted."""
    lines = ["", "Error: Deletion of some consumer groups failed:"]
    for group_id, error in failed.items():
        reason = exception_text(error)
        lines.append(f"* Group '{group_id}' could not be deleted due to: {reason}")
    if done:
        names = "', '".join(done)
        lines += ["", f"These consumer groups were deleted successfully: '{names}'"]
    return lines


def group_json(group: GroupDescription, rows: Sequence[PartitionRow] | None) -> dict[str, Any]:
    """Return a group as a document, with its offsets if `rows` is given."""
    document: dict[str, Any] = {
        "group": group.group_id,
        "type": group.group_type,
        "state": group.state,
        "assignor": group.assignor,
        "epoch": group.epoch,
        "targetEpoch": group.target_epoch,
        "coordinator": group.coordinator.node_id,
        "members": [
            {
                "consumerId": m.member_id,
                "groupInstanceId": m.instance_id,
                "epoch": m.epoch,
                "usesConsumerProtocol": m.uses_consumer_protocol,
                "host": m.host,
                "clientId": m.client_id,
                "assignment": [{"topic": t, "partition": p} for t, p in sorted(m.assignment)],
            }
            for m in group.members
        ],
    }
    if rows is not None:
        document["offsets"] = [
            {
                "topic": row.partition.topic,
                "partition": row.partition.partition,
                "currentOffset": None if row.committed is None else row.committed.offset,
                "logEndOffset": row.end_offset,
                "lag": row.lag,
                "consumerId": None if row.member is None else row.member.member_id,
            }
            for row in rows
        ]
    return document


def _shown(number: int | None) -> str:
    return MISSING if number is None else str(number)


def _aligned(rows: Iterable[Sequence[str]], widths: Sequence[int]) -> list[str]:
    return [
        " ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False))
        for row in rows
    ]
