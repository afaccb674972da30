"""Topics that a broker creates because a client asks for them by name."""

from pathlib import Path

from cluster_harness import cluster_homes, running_cluster
from node_harness import connected

from spindle.protocol.messages.metadata import MetadataRequest

OF_BROKER = {"num.partitions": "5", "default.replication.factor": "2"}
OF_CONTROLLER = {"num.partitions": "3", "default.replication.factor": "1"}


async def shape_of_a_new_topic(folder: Path, of_brokers: dict[str, str]) -> tuple[int, int]:
    """Return how many partitions it has, and how many replicas each has."""
    folder.mkdir()
    controller, *brokers = homes = cluster_homes(folder, ["controller", "broker", "broker"])
    controller.properties |= OF_CONTROLLER
    for home in brokers:
        home.properties |= of_brokers
    async with running_cluster(homes) as nodes, connected(nodes[1]) as client:
        broker = nodes[1].broker
        assert broker is not None
        topic = MetadataRequest.MetadataRequestTopic(name="t")
        await client.ask(MetadataRequest(topics=[topic], allow_auto_topic_creation=True))
        assert await broker.metadata.wait_for(lambda image: "t" in image.topics.by_name, 60)
        partitions = broker.metadata.image.topics.by_name["t"].partitions
        return len(partitions), len(partitions[0].replicas)


async def test_a_broker_asks_for_what_its_own_property_file_says(tmp_path: Path) -> None:
    """Keys that it lacks are the controller's to choose."""
    only_partitions = {"num.partitions": "5"}
    assert await shape_of_a_new_topic(tmp_path / "both", OF_BROKER) == (5, 2)
    assert await shape_of_a_new_topic(tmp_path / "one", only_partitions) == (5, 1)
    assert await shape_of_a_new_topic(tmp_path / "none", {}) == (3, 1)
