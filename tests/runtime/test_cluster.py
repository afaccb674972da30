"""Brokers and controllers in different nodes: registration, forwarding, a controller that goes."""

from pathlib import Path

from cluster_harness import COMBINED, cluster_homes, running_cluster
from node_harness import connected

from spindle.protocol.messages.metadata import MetadataRequest


async def test_brokers_register_with_a_controller_elsewhere_and_forward_to_it(
    tmp_path: Path,
) -> None:
    homes = cluster_homes(tmp_path, ["controller", "broker", "broker"])

    async with running_cluster(homes) as nodes:
        async with connected(nodes[1]) as client:
            topic_id = await client.create_topic("made-elsewhere", 2)
        assert nodes[2].broker is not None
        metadata = nodes[2].broker.metadata
        assert await metadata.wait_for(lambda i: topic_id in i.topics.by_id, 60)
        async with connected(nodes[2]) as client:
            answer = await client.ask(MetadataRequest(topics=None))
    assert sorted(broker.node_id for broker in answer.brokers) == [2, 3]
    (topic,) = answer.topics
    assert (topic.name, topic.topic_id) == ("made-elsewhere", topic_id)
    assert sorted(p.leader_id for p in topic.partitions) == [2, 3]


async def test_three_combined_nodes_continue_without_the_active_controller(tmp_path: Path) -> None:
    homes = cluster_homes(tmp_path, [COMBINED] * 3)

    async with running_cluster(homes) as nodes:
        leader_id = nodes[0].publisher.leader.leader_id
        await nodes[leader_id - 1].stop()
        survivor = nodes[leader_id % 3]
        async with connected(survivor) as client:
            await client.create_topic("after-the-failover")
            metadata = await client.ask(MetadataRequest(topics=None))
    assert [topic.name for topic in metadata.topics] == ["after-the-failover"]
    assert leader_id not in [broker.node_id for broker in metadata.brokers]
