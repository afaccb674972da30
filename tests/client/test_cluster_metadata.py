"""The view of the cluster that a client reads from Metadata answers."""

import pytest

from spindle.client.cluster_metadata import BrokerAddress, ClusterView, PartitionView, TopicView
from spindle.common.ids import TopicPartition
from spindle.common.uuids import ZERO_UUID

VIEW = ClusterView(
    brokers={1: BrokerAddress(1, "h", 9092)},
    topics={
        "t": TopicView(
            "t",
            ZERO_UUID,
            False,
            {
                number: PartitionView(number, leader, 0, (1, 2), (1, 2), ())
                for number, leader in enumerate((1, -1, 2))
            },
        )
    },
)


@pytest.mark.parametrize(
    ("partition", "expected"),
    [
        (TopicPartition("t", 0), True),
        (TopicPartition("t", 1), False),
        (TopicPartition("t", 2), False),
        (TopicPartition("t", 3), False),
        (TopicPartition("missing", 0), False),
    ],
    ids=["led", "no leader", "its leader is down", "no partition", "no topic"],
)
def test_a_partition_has_a_leader_if_a_known_broker_leads_it(
    partition: TopicPartition, expected: bool
) -> None:
    assert VIEW.has_leader(partition) is expected
