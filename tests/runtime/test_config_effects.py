"""Keys of a node that have an effect at a place of their own: what changes with their values."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from cluster_harness import cluster_homes, free_ports, running_cluster
from node_harness import Home, connected, running
from waiting import until

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import OFFSETS_TOPIC
from spindle.config.broker_values import BrokerValues
from spindle.config.node_config import NodeConfig
from spindle.config.resources import ConfigResourceType
from spindle.log.cleaning.cleaning import CleaningSettings
from spindle.metadata.configs import DEFAULT_BROKER, ConfigsImage
from spindle.metadata.image import EMPTY_IMAGE
from spindle.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from spindle.protocol.messages.delete_groups import DeleteGroupsRequest
from spindle.protocol.messages.find_coordinator import FindCoordinatorRequest
from spindle.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from spindle.protocol.messages.offset_commit import OffsetCommitRequest
from spindle.replicas.replica_manager import ReplicaManager
from spindle.runtime.broker.housekeeping import Housekeeping
from spindle.runtime.broker.topic_settings import SettingsOfTopics
from spindle.runtime.node import Node

PROPERTIES = {
    "process.roles": "broker",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "h1:9093",
}
HOUR_MS = "3600000"


class IdleDirectory:
    """A log directory without logs to compact, and its executor; records what it is asked for."""

    path = "/disk"
    is_offline = False

    def __init__(self) -> None:
        self.executor = self.cleaner = self
        self.map_sizes: asyncio.Queue[int] = asyncio.Queue()

    def next_pass(self, now_ms: int, settings: CleaningSettings) -> None:
        self.map_sizes.put_nowait(settings.map_bytes)

    async def submit(self, work: Callable[..., Any], *arguments: Any) -> Any:
        return work(*arguments)


async def test_the_cleaner_takes_new_values_while_the_broker_runs() -> None:
    directory = IdleDirectory()
    replicas = cast(ReplicaManager, type("ReplicaManager", (), {"directories": [directory]}))
    node = NodeConfig.from_properties(
        {
            **PROPERTIES,
            "log.initial.task.delay.ms": "0",
            "log.cleaner.backoff.ms": HOUR_MS,
            "log.cleaner.dedupe.buffer.size": "2000000",
        }
    )
    housekeeping = Housekeeping(replicas, node, lambda: 0)
    housekeeping.update(BrokerValues(node, cluster={"log.cleaner.backoff.ms": "1"}))
    housekeeping.start()
    assert [await directory.map_sizes.get() for _ in range(2)] == [2_000_000] * 2
    size = {"log.cleaner.dedupe.buffer.size": "3000000", "log.cleaner.backoff.ms": "1"}
    housekeeping.update(BrokerValues(node, broker=size))
    while await directory.map_sizes.get() != 3_000_000:
        pass
    await housekeeping.stop()


async def test_a_limit_on_connections_that_is_set_by_request_counts_at_once(tmp_path: Path) -> None:
    home = Home(tmp_path, 1).format()

    async with running(home) as node, connected(node) as client:
        assert node.broker is not None
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource
        limit = resource.AlterableConfig(name="max.connections.per.ip", value="1")
        change = resource(
            resource_type=ConfigResourceType.BROKER, resource_name="", configs=[limit]
        )
        answer = await client.ask(IncrementalAlterConfigsRequest(resources=[change]))
        assert answer.responses[0].error_code == 0, answer
        assert await node.broker.metadata.wait_for(lambda i: bool(i.configs.default_broker()), 60)
        refused, writer = await asyncio.open_connection("127.0.0.1", node.broker.listeners[0].port)
        assert await refused.read() == b""
        writer.close()


def test_the_expiration_of_producer_ids_is_the_dynamic_value() -> None:
    node = NodeConfig.from_properties({**PROPERTIES, "producer.id.expiration.ms": "5000"})
    dynamic = ConfigsImage(by_resource={DEFAULT_BROKER: {"producer.id.expiration.ms": "7000"}})
    settings = SettingsOfTopics(node)
    assert settings.of(EMPTY_IMAGE, "t").log_config.producer_id_expiration_ms == 5000
    settings.forget()
    image = replace(EMPTY_IMAGE, configs=dynamic)
    assert settings.of(image, "t").log_config.producer_id_expiration_ms == 7000


@pytest.mark.parametrize("is_enabled", [True, False])
async def test_a_controlled_shutdown_is_asked_for_where_it_is_enabled(
    tmp_path: Path, is_enabled: bool
) -> None:
    homes = cluster_homes(
        tmp_path,
        ["broker,controller", "broker"],
        controlled_shutdown_enable=str(is_enabled).lower(),
        broker_session_timeout_ms=HOUR_MS,
    )
    async with running_cluster(homes) as nodes:
        stopping = nodes[1].broker
        assert stopping is not None
        await stopping.stop(10)
        seen = nodes[0].publisher
        if is_enabled:
            await until(lambda: not seen.image.cluster.brokers[2].is_active)
        else:
            assert seen.image.cluster.brokers[2].is_active


async def test_a_request_to_the_controller_waits_for_the_request_timeout(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    home = Home(
        tmp_path,
        1,
        process_roles="broker",
        node_id="2",
        listeners="PLAINTEXT://127.0.0.1:0",
        controller_quorum_voters=f"1@127.0.0.1:{port}",
        request_timeout_ms="10",
    ).format()
    node = Node(home.config())
    starting = asyncio.create_task(node.start())
    try:
        await until(lambda: node.controller is not None)
        assert node.controller is not None
        with pytest.raises(ApiError, match="no active controller answered") as refusal:
            await node.controller.channel.request(BrokerHeartbeatRequest())
        assert refusal.value.code is ErrorCode.REQUEST_TIMED_OUT
    finally:
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        await node.stop()


async def test_the_metadata_log_has_small_segments_where_a_test_asks_for_them(
    tmp_path: Path,
) -> None:
    home = Home(tmp_path, 1, internal_metadata_log_segment_bytes="1000").format()

    async with running(home) as node, connected(node) as client:
        for number in range(20):
            await client.create_topic(f"t{number}")
    folder = home.directories[0] / "__cluster_metadata-0"
    assert len(list(folder.glob("*.log"))) > 1


async def test_a_coordinator_keeps_to_the_batch_size_of_its_topic(tmp_path: Path) -> None:
    home = Home(tmp_path, 1, offsets_topic_num_partitions="1").format()
    kind = OffsetCommitRequest.OffsetCommitRequestTopic
    partitions = [
        kind.OffsetCommitRequestPartition(partition_index=index, committed_offset=5)
        for index in range(20)
    ]

    async with running(home) as node, connected(node) as client:
        topic_id = await client.create_topic("t", partitions=20)
        await client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))
        commit = OffsetCommitRequest(
            group_id="g", topics=[kind(topic_id=topic_id, partitions=partitions)]
        )
        committed = await client.ask(commit)
        assert {p.error_code for p in committed.topics[0].partitions} == {ErrorCode.NONE}
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource
        limit = resource.AlterableConfig(name="max.message.bytes", config_operation=0, value="400")
        altered = await client.ask(
            IncrementalAlterConfigsRequest(
                resources=[
                    resource(
                        resource_type=ConfigResourceType.TOPIC,
                        resource_name=OFFSETS_TOPIC,
                        configs=[limit],
                    )
                ]
            )
        )
        assert altered.responses[0].error_code == ErrorCode.NONE
        deleted = await client.ask(DeleteGroupsRequest(groups_names=["g"]))
        assert deleted.results[0].error_code == ErrorCode.NONE
