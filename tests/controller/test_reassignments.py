"""Reassignment, cancelling and completion, as Apache Kafka 4.3.1 recorded them."""

from test_broker_failures import Cluster

from spindle.common.errors import ErrorCode
from spindle.common.uuids import DIRECTORY_UNASSIGNED
from spindle.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
)
from spindle.protocol.messages.create_topics import CreateTopicsRequest
from spindle.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
)

TOPIC = CreateTopicsRequest.CreatableTopic
ASK = AlterPartitionReassignmentsRequest.ReassignableTopic
U = DIRECTORY_UNASSIGNED


class TwoReplicas(Cluster):
    """Topic r with one partition on brokers 1 and 2."""

    async def start(self) -> None:
        await super().start()
        topic = TOPIC(
            name="r",
            num_partitions=-1,
            replication_factor=-1,
            assignments=[TOPIC.CreatableReplicaAssignment(broker_ids=[1, 2])],
        )
        (created,) = (await self.request(CreateTopicsRequest(topics=[topic]))).topics
        self.topics["r"] = created.topic_id
        self.new_records()

    async def reassign(
        self, replicas: list[int] | None, *, name: str = "r", allow_resize: bool = True
    ) -> tuple[int, str | None]:
        partition = ASK.ReassignablePartition(partition_index=0, replicas=replicas)
        request = AlterPartitionReassignmentsRequest(
            allow_replication_factor_change=allow_resize,
            topics=[ASK(name=name, partitions=[partition])],
        )
        (answer,) = (await self.request(request)).responses[0].partitions
        return answer.error_code, answer.error_message

    async def ongoing(self) -> list[tuple[list[int], list[int], list[int]]]:
        response = await self.request(ListPartitionReassignmentsRequest(topics=None))
        return [
            (partition.replicas, partition.adding_replicas, partition.removing_replicas)
            for topic in response.topics
            for partition in topic.partitions
        ]


async def test_start_and_cancel_leave_the_order_of_the_target() -> None:
    c = TwoReplicas()
    await c.start()
    assert await c.reassign([2, 3]) == (0, None)
    assert await c.ongoing() == [([2, 3, 1], [3], [1])]
    assert await c.reassign(None) == (0, None)
    assert c.new_records()[-1] == [
        c.change(
            "r",
            leader=1,
            replicas=[2, 1],
            removing_replicas=[],
            adding_replicas=[],
            directories=[U, U],
        )
    ]
    assert await c.reassign(None) == (ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None)


async def test_completion_is_one_record_that_moves_the_leadership() -> None:
    c = TwoReplicas()
    await c.start()
    await c.reassign([2, 3])
    assert c.new_records() == [
        [
            c.change(
                "r",
                replicas=[2, 3, 1],
                removing_replicas=[1],
                adding_replicas=[3],
                directories=[U, U, U],
            )
        ]
    ]
    assert await c.alter_isr("r", [1, 2, 3]) == ErrorCode.NEW_LEADER_ELECTED
    assert c.new_records() == [
        [
            c.change(
                "r",
                isr=[2, 3],
                leader=2,
                replicas=[2, 3],
                removing_replicas=[],
                adding_replicas=[],
                directories=[U, U],
            )
        ]
    ]
    assert await c.ongoing() == []


async def test_fewer_replicas_complete_at_once() -> None:
    c = TwoReplicas()
    await c.start()
    assert await c.reassign([2]) == (0, None)
    assert c.new_records() == [[c.change("r", isr=[2], leader=2, replicas=[2], directories=[U])]]


async def test_removing_a_follower_begins_a_new_leader_epoch() -> None:
    """Leaders rely on it: within a leader epoch no replica is removed and added again."""

    c = TwoReplicas()
    await c.start()
    before = c.driver.speculative_image.topics.by_name["r"].partitions[0]
    assert await c.reassign([1]) == (0, None)
    after = c.driver.speculative_image.topics.by_name["r"].partitions[0]
    assert (after.leader, after.replicas) == (1, (1,))
    assert after.leader_epoch == before.leader_epoch + 1


async def test_a_changed_target_forgets_what_it_no_longer_adds() -> None:
    c = TwoReplicas()
    await c.start()
    await c.reassign([2, 3])
    assert await c.reassign([2, 1]) == (0, None)
    partition = c.driver.speculative_image.topics.by_name["r"].partitions[0]
    assert partition.replicas == (2, 1)
    assert not partition.is_reassigning
    assert partition.leader == 1


async def test_refusals_name_the_reason() -> None:
    c = TwoReplicas()
    await c.start()
    code = ErrorCode
    unknown_topic, _ = await c.reassign([1], name="nope")
    assert unknown_topic == code.UNKNOWN_TOPIC_OR_PARTITION
    assert await c.reassign([1, 9]) == (
        code.INVALID_REPLICA_ASSIGNMENT,
        "The manual partition assignment includes broker 9, but no such broker is registered.",
    )
    assert (await c.reassign([]))[0] == code.INVALID_REPLICA_ASSIGNMENT
    assert (await c.reassign([1, 1]))[0] == code.INVALID_REPLICA_ASSIGNMENT
    assert await c.reassign([3], allow_resize=False) == (
        code.INVALID_REPLICATION_FACTOR,
        "The replication factor is changed from 2 to 1",
    )
    assert c.new_records() == []
