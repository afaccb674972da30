"""Share groups (KIP-932): describe their members, and how far they are."""

from typing import NamedTuple

from spindle.client.admin.coordinators import coordinated
from spindle.client.admin.groups import GroupDescription, MemberDescription
from spindle.client.admin.refusals import raise_refusal
from spindle.client.blocking.client import WireClient
from spindle.client.cluster_metadata import BrokerAddress
from spindle.common.ids import TopicPartition
from spindle.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)
from spindle.protocol.messages.share_group_describe import (
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)


class ShareOffset(NamedTuple):
    """How far a share group is in a partition; None where it is not known."""

    start_offset: int | None
    """All records below it are acknowledged or archived."""
    lag: int | None
    """Number of records up to the end that are not: delivered or not, they are still to be done."""


def describe_share_group(client: WireClient, group_id: str) -> GroupDescription:
    """Return a share group and its members.

    Raises:
        ApiError: GROUP_ID_NOT_FOUND, or the coordinator refused.
        ClientError: no broker could be asked.
    """

    def ask(coordinator: BrokerAddress) -> GroupDescription:
        group = client.ask(
            ShareGroupDescribeRequest(group_ids=[group_id]),
            ShareGroupDescribeResponse,
            broker=coordinator,
        ).groups[0]
        raise_refusal(group.error_code, group.error_message)
        members = [
            MemberDescription(
                m.member_id,
                None,
                m.client_id,
                m.client_host,
                tuple(
                    TopicPartition(t.topic_name, index)
                    for t in m.assignment.topic_partitions
                    for index in t.partitions
                ),
                m.member_epoch,
            )
            for m in group.members
        ]
        return GroupDescription(
            group.group_id,
            "Share",
            group.group_state,
            group.assignor_name,
            coordinator,
            tuple(members),
            group.group_epoch,
            group.assignment_epoch,
        )

    return coordinated(client, group_id, ask)


def share_offsets(client: WireClient, group_id: str) -> dict[TopicPartition, ShareOffset]:
    """Return the position of a share group in all its partitions, in their order.

    Raises:
        ApiError: the coordinator refused, or refused a partition.
        ClientError: no broker could be asked.
    """
    cls = DescribeShareGroupOffsetsRequest
    request = cls(
        groups=[cls.DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=None)]
    )

    def ask(coordinator: BrokerAddress) -> dict[TopicPartition, ShareOffset]:
        group = client.ask(request, DescribeShareGroupOffsetsResponse, broker=coordinator).groups[0]
        raise_refusal(group.error_code, group.error_message)
        offsets = {}
        for topic in group.topics:
            for part in topic.partitions:
                raise_refusal(part.error_code, part.error_message)
                offsets[TopicPartition(topic.topic_name, part.partition_index)] = ShareOffset(
                    None if part.start_offset < 0 else part.start_offset,
                    None if part.lag < 0 else part.lag,
                )
        return dict(sorted(offsets.items()))

    return coordinated(client, group_id, ask)
