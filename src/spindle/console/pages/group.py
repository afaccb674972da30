"""Group: its members, and its position and lag in each partition."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from spindle.cli.tools.groups_text import assignment_text, partition_rows, titled
from spindle.client.admin.groups import (
    GroupDescription,
    committed_offsets,
    describe_group,
    list_all_groups,
)
from spindle.client.admin.share_groups import describe_share_group, share_offsets
from spindle.client.blocking.client import WireClient
from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicPartition
from spindle.console.actions import command_line
from spindle.console.page import Page, PageNotFound, PageRequest
from spindle.protocol.sentinels import LATEST

_MAX_ROWS: Final = 500
_SHARE: Final = "Share"
_DEAD: Final = "Dead"


class LagRow(NamedTuple):
    """The position of a group in a partition; None where it is unknown.

    Attributes:
        position: the committed offset; in a share group the first offset that is not done.
        client: of the member that has the partition; empty in a share group.
    """

    partition: TopicPartition
    position: int | None
    end: int | None
    lag: int | None
    client: str


def _view(request: PageRequest) -> Mapping[str, Any]:
    name = str(request.names["group"])
    with request.clients.one() as client:
        group = _described(client, name)
        is_share = group.group_type == _SHARE
        rows = _share_rows(client, name) if is_share else _lag_rows(client, group)
    rows.sort(key=lambda row: -(row.lag or 0))
    members = [
        (m.client_id, m.host, m.member_id, assignment_text(m.assignment)) for m in group.members
    ]
    return {
        "title": name,
        "name": name,
        "type": titled(group.group_type),
        "state": titled(group.state),
        "is_share": is_share,
        "coordinator": group.coordinator.node_id,
        "lag": sum(row.lag or 0 for row in rows),
        "is_lag_known": all(row.lag is not None for row in rows),
        "rows": rows[:_MAX_ROWS],
        "more_rows": max(0, len(rows) - _MAX_ROWS),
        "members": members[:_MAX_ROWS],
        "member_count": len(members),
        "command": command_line(("groups", "describe", name), request.bootstrap),
    }


def _described(client: WireClient, name: str) -> GroupDescription:
    """Return a group of any type.

    Raises:
        PageNotFound: there is no such group.
    """
    try:
        group = describe_group(client, name)
    except ApiError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
    else:
        if group.state != _DEAD:
            return group
    types = {g.group_id: titled(g.group_type) for g in list_all_groups(client)}
    if types.get(name) == _SHARE:
        return describe_share_group(client, name)
    raise PageNotFound(f"There is no group {name}.")


def _lag_rows(client: WireClient, group: GroupDescription) -> list[LagRow]:
    committed = committed_offsets(client, group.group_id)
    ends = _end_offsets(client, [*committed, *(p for m in group.members for p in m.assignment)])
    return [
        LagRow(
            row.partition,
            None if row.committed is None else row.committed.offset,
            row.end_offset,
            row.lag,
            "" if row.member is None else row.member.client_id,
        )
        for row in partition_rows(group, committed, ends)
    ]


def _share_rows(client: WireClient, name: str) -> list[LagRow]:
    offsets = share_offsets(client, name)
    return [
        LagRow(where, offset.start_offset, None, offset.lag, "")
        for where, offset in offsets.items()
    ]


def _end_offsets(
    client: WireClient, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return the end offsets of the partitions that exist and have a leader."""
    wanted = list(dict.fromkeys(partitions))
    if not wanted:
        return {}
    view = client.metadata(sorted({partition.topic for partition in wanted}))
    listed = client.list_offsets({p: LATEST for p in wanted if view.has_leader(p)})
    return {partition: result.offset for partition, result in listed.items()}


PAGE: Final = Page("group", "/groups/{group:path}", "Group", _view, menu="groups", is_in_menu=False)
