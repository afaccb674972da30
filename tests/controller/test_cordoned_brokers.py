"""Cordoned brokers: automatic placement passes them over, manual assignments are refused."""

from typing import Any

from controller_harness import Harness

from spindle.common.errors import ErrorCode
from spindle.common.uuids import Uuid
from spindle.protocol.message import Message
from spindle.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
)
from spindle.protocol.messages.create_partitions import CreatePartitionsRequest
from spindle.protocol.messages.create_topics import CreateTopicsRequest
from spindle.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

Topic = CreateTopicsRequest.CreatableTopic
Grown = CreatePartitionsRequest.CreatePartitionsTopic
Moved = AlterPartitionReassignmentsRequest.ReassignableTopic
TOO_FEW = (
    "The target replication factor of 3 cannot be reached because only 2 broker(s) are "
    "registered or some brokers have all their log directories cordoned."
)


def directories(broker_id: int) -> list[Uuid]:
    return [bytes([broker_id, disk] * 8) for disk in (1, 2)]


async def cluster(metadata_version: int = 30) -> tuple[Harness, dict[int, int]]:
    """Return three brokers, of which broker 1 is wholly and broker 2 partly cordoned."""
    node = Harness(metadata_version=metadata_version)
    node.quorum.become_leader(1, 1)
    epochs = {number: await node.broker(number, directories(number)) for number in (1, 2, 3)}
    await node.heartbeat(1, epochs[1], cordoned_log_dirs=directories(1))
    await node.heartbeat(2, epochs[2], cordoned_log_dirs=directories(2)[:1])
    return node, epochs


def topic(name: str, *assignment: list[int], replication_factor: int = -1) -> Message:
    rows = [
        Topic.CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
        for index, brokers in enumerate(assignment)
    ]
    count = -1 if assignment else 3
    return CreateTopicsRequest(
        topics=[
            Topic(
                name=name,
                num_partitions=count,
                replication_factor=replication_factor,
                assignments=rows,
            )
        ]
    )


def grown(name: str, count: int, *assignment: list[int]) -> Message:
    rows = [Grown.CreatePartitionsAssignment(broker_ids=brokers) for brokers in assignment]
    return CreatePartitionsRequest(topics=[Grown(name=name, count=count, assignments=rows or None)])


def moved(name: str, **replicas: list[int]) -> Message:
    rows = [
        Moved.ReassignablePartition(partition_index=int(key[1:]), replicas=brokers)
        for key, brokers in replicas.items()
    ]
    return AlterPartitionReassignmentsRequest(topics=[Moved(name=name, partitions=rows)])


async def test_automatic_placement_passes_over_a_wholly_cordoned_broker() -> None:
    node, epochs = await cluster()
    (refused,) = (await node.request(topic("e1", replication_factor=3))).topics
    assert refused.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    prefix = "Unable to replicate the partition 3 time(s): "
    assert refused.error_message == prefix + TOO_FEW
    (made,) = (await node.request(topic("e2", replication_factor=2))).topics
    assert made.error_code == 0
    partitions = node.publisher.image.topics.by_name["e2"].partitions.values()
    assert all(sorted(partition.replicas) == [2, 3] for partition in partitions)

    await node.heartbeat(1, epochs[1], cordoned_log_dirs=[])
    await node.request(topic("d", replication_factor=3))
    await node.heartbeat(1, epochs[1], cordoned_log_dirs=directories(1))
    (refused,) = (await node.request(grown("d", 6))).results
    assert (refused.error_code, refused.error_message) == (
        ErrorCode.INVALID_REPLICATION_FACTOR,
        TOO_FEW,
    )
    before = node.publisher.image.topics.by_name["d"]
    assert {p.leader for p in before.partitions.values()} == {1, 2, 3}, "existing replicas stay"


async def test_a_cordon_counts_for_a_broker_that_is_away_until_it_registers_again() -> None:
    node, epochs = await cluster()
    await node.heartbeat(1, epochs[1], want_shut_down=True, cordoned_log_dirs=directories(1))
    assert not node.publisher.image.cluster.brokers[1].has_uncordoned_directory()
    await node.register(1, 77, directories(1), previous_broker_epoch=epochs[1])
    assert node.publisher.image.cluster.brokers[1].cordoned_directories is None


async def test_a_cordon_stays_in_force_while_the_same_process_registers_again() -> None:
    node, epochs = await cluster()
    more = [*directories(1), bytes([1, 3] * 8)]
    for log_dirs in (directories(1), more):
        answer: Any = await node.register(1, 101, log_dirs)
        assert answer.broker_epoch == epochs[1]
        own = node.publisher.image.cluster.brokers[1]
        assert own.cordoned_directories == tuple(directories(1))
    await node.register(1, 101, directories(1))
    (refused,) = (await node.request(topic("e1", replication_factor=3))).topics
    assert refused.error_code == ErrorCode.INVALID_REPLICATION_FACTOR


async def test_a_manual_assignment_that_includes_a_cordoned_broker_is_refused() -> None:
    node, epochs = await cluster()
    await node.heartbeat(1, epochs[1], cordoned_log_dirs=[])
    (made,) = (await node.request(topic("m", [1, 2], [2, 3]))).topics
    assert made.error_code == 0
    await node.heartbeat(1, epochs[1], cordoned_log_dirs=directories(1))
    text = "The manual partition assignment includes broker 1, but all its log directories "
    refused = (ErrorCode.INVALID_REPLICA_ASSIGNMENT, text + "are cordoned.")
    (made,) = (await node.request(topic("n", [2, 1]))).topics
    assert (made.error_code, made.error_message) == refused
    (more,) = (await node.request(grown("m", 3, [1, 3]))).results
    assert (more.error_code, more.error_message) == refused
    answer = await node.request(moved("m", p0=[3, 1], p1=[2, 1]))
    assert [(p.error_code, p.error_message) for p in answer.responses[0].partitions] == [
        refused,
        refused,
    ], "partition 0 has a replica there already"
    answer = await node.request(moved("m", p0=[3, 2]))
    assert answer.responses[0].partitions[0].error_code == 0, "away from the broker"


async def test_below_its_level_a_reported_cordon_is_ignored() -> None:
    node, _ = await cluster(metadata_version=29)
    assert node.publisher.image.cluster.brokers[1].cordoned_directories is None
    (made,) = (await node.request(topic("e1", replication_factor=3))).topics
    assert made.error_code == 0


Altered = IncrementalAlterConfigsRequest.AlterConfigsResource
CORDONS, NOTES = "cordoned.log.dirs", "spindle.cordon.notes"


async def set_configs(node: Harness, **values: str | None) -> dict[str, str]:
    """Set or, with None, delete keys of broker 1 with one request; return all its keys."""
    configs = [
        Altered.AlterableConfig(
            name={"cordons": CORDONS, "notes": NOTES}[key],
            config_operation=1 if value is None else 0,
            value=value,
        )
        for key, value in values.items()
    ]
    request: Any = IncrementalAlterConfigsRequest(
        resources=[Altered(resource_type=4, resource_name="1", configs=configs)]
    )
    answer: Any = await node.driver.handle(request)
    assert answer.responses[0].error_code == 0, answer
    return dict(node.publisher.image.configs.broker(1))


async def test_a_note_ends_with_its_cordon_whichever_tool_changes_the_cordons() -> None:
    a, b = '{"path":"/a","owner":"x"}', '{"path":"/b","until_ms":5}'

    node, _ = await cluster()
    both = {CORDONS: "/a,/b", NOTES: f"[{a},{b}]"}
    assert await set_configs(node, cordons="/a,/b", notes=f"[{a},{b}]") == both
    assert await set_configs(node, cordons="/b,/a,/c") == {**both, CORDONS: "/b,/a,/c"}
    assert await set_configs(node, cordons="/b") == {CORDONS: "/b", NOTES: f"[{b}]"}
    assert await set_configs(node, cordons="") == {CORDONS: ""}
    assert await set_configs(node, cordons="/b") == {CORDONS: "/b"}, "a new cordon, no note"
    await set_configs(node, notes=f"[{b}]")
    assert await set_configs(node, cordons=None) == {}
