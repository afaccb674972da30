"""The last step of a plan: change preferred leaders, and elect them."""

from collections.abc import Mapping, Sequence

from spindle.client.admin.partitions import ElectionType, alter_reassignments, elect_leaders
from spindle.client.admin.refusals import refusal_text
from spindle.client.blocking.client import WireClient
from spindle.common.errors import ErrorCode
from spindle.common.ids import TopicPartition
from spindle.operations.events import LeadersChanged, MoveRefused, OnProgress
from spindle.operations.reassignment import current_replicas


def give_leaderships(
    client: WireClient, orders: Mapping[TopicPartition, Sequence[int]], report: OnProgress
) -> None:
    """Reorder the replicas of partitions, and elect their preferred leaders. No bytes move.

    Partitions whose replicas have changed since the plan was made are left out.

    Args:
        orders: the brokers of each partition, the leader first.

    Raises:
        ApiError, ClientError: the cluster refused, or could not be asked.
    """
    topics = sorted({partition.topic for partition in orders})
    current = current_replicas(client, topics, missing_ok=True) if topics else {}
    wanted = {
        partition: brokers
        for partition, brokers in orders.items()
        if sorted(current.get(partition, ())) == sorted(brokers)
    }
    if not wanted:
        return
    refused = {p: error for p, error in alter_reassignments(client, wanted).items() if error}
    for partition, error in refused.items():
        report(MoveRefused(str(partition), refusal_text(error), is_order=True))
    reordered = [partition for partition in wanted if partition not in refused]
    if not reordered:
        return
    answers = elect_leaders(client, ElectionType.PREFERRED, reordered)
    late = [
        partition
        for partition, error in answers.items()
        if error is not None and error.code is not ErrorCode.ELECTION_NOT_NEEDED
    ]
    report(LeadersChanged(len(reordered), len(late), late[0] if late else None))
