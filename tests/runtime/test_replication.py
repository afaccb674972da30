"""Replicas on several nodes: the same bytes everywhere, through stops, elections, lost topics."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from cluster_harness import cluster_homes, running_cluster
from fake_broker import create_replicated
from node_harness import Client, Home, batch_of, connected
from waiting import until

from spindle.common.errors import ErrorCode
from spindle.common.filesystem import OsFileSystem
from spindle.common.ids import TopicPartition
from spindle.config.resources import ConfigResourceType
from spindle.disks.directory_store import DirectoryStore
from spindle.log.formats.checkpoints import HIGH_WATERMARKS, read_offset_checkpoint
from spindle.log.log_config import LogConfig
from spindle.metadata.image import MetadataImage
from spindle.metadata.partitions import PartitionRegistration
from spindle.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
)
from spindle.protocol.messages.delete_topics import DeleteTopicsRequest
from spindle.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
)
from spindle.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from spindle.protocol.records.batch import patch_offset_and_epoch
from spindle.replicas.partition import Partition
from spindle.replicas.replica_manager import ReplicaManager
from spindle.runtime.broker.lifecycle import BrokerState
from spindle.runtime.metrics.partitions import PartitionRows, gather_rows
from spindle.runtime.node import Node

CONTROLLER = 1
Registered = Callable[[PartitionRegistration], bool]


def is_up(node: Node) -> bool:
    return node.broker is not None and node.broker.state is BrokerState.RUNNING


class News:
    """Watches a partition."""

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.log_moved = self.committed = self.changed = self.event.set


class Cluster:
    """Node 1 is the controller, the others are brokers."""

    def __init__(self, homes: Sequence[Home], nodes: list[Node]) -> None:
        self._homes = homes
        self._nodes = nodes

    def home(self, node_id: int) -> Home:
        return self._homes[node_id - 1]

    def node(self, node_id: int) -> Node:
        return self._nodes[node_id - 1]

    async def stop(self, node_id: int) -> None:
        await self.node(node_id).stop()

    async def start(self, node_id: int) -> None:
        self._nodes[node_id - 1] = node = Node(self.home(node_id).config())
        await node.start()

    async def create(self, name: str, replicas: list[int]) -> bytes:
        """One partition with these replicas, the first of which leads."""
        async with connected(self.node(replicas[0])) as client:
            topic_id = await create_replicated(client, name, replicas)
        for replica in replicas:
            broker = self.node(replica).broker
            if broker is not None and is_up(self.node(replica)):
                assert await broker.metadata.wait_for(lambda i: topic_id in i.topics.by_id, 60)
        return topic_id

    async def produce(self, leader_id: int, topic: str, *values: bytes) -> None:
        """With acks=all."""
        async with connected(self.node(leader_id)) as client:
            for value in values:
                answer = await client.produce(topic, 0, batch_of(value))
                assert answer.error_code == 0, answer

    async def registered(self, topic_id: bytes, is_so: Registered) -> None:
        """Return when the partition's registration is like that."""
        broker = next(n.broker for n in self._nodes if n.broker is not None and is_up(n))

        def check(image: MetadataImage) -> bool:
            partition = image.topics.partition(topic_id, 0)
            return partition is not None and is_so(partition)

        assert await broker.metadata.wait_for(check, 60)

    async def replicated(self, topic: str, node_ids: Sequence[int]) -> None:
        """Return when these nodes have all that is in the leader's log, and know it committed."""
        replicas = [self.replica(node_id, topic) for node_id in node_ids]
        end_offset = next(r.log.log_end_offset for r in replicas if r.leader is not None)
        for replica in replicas:
            news = News()
            replica.watch(news, appends=True)
            async with asyncio.timeout(60):
                while replica.high_watermark < end_offset:
                    await news.event.wait()
                    news.event.clear()
            replica.unwatch(news)
        first, *others = [self.segments(node_id, topic) for node_id in node_ids]
        assert first
        assert others == [first] * len(others)

    def replica(self, node_id: int, topic: str) -> Partition:
        broker = self.node(node_id).broker
        assert broker is not None
        partition = broker.replicas.lookup(topic, 0)
        assert partition is not None
        return partition

    def segments(self, node_id: int, topic: str) -> bytes:
        folders = [d / f"{topic}-0" for d in self.home(node_id).directories]
        files = sorted(f for folder in folders for f in folder.glob("*.log"))
        return b"".join(file.read_bytes() for file in files)

    def folders(self, node_id: int) -> list[str]:
        """Partition folders of a node; of strays and deleted ones the kind instead of the id."""
        names = [folder.name for d in self.home(node_id).directories for folder in d.glob("t*-0*")]
        return sorted(f"{n.partition('.')[0]}-{n[-5:]}" if "." in n else n for n in names)


async def alter(
    client: Client, settings: Mapping[tuple[ConfigResourceType, str], Mapping[str, str]]
) -> None:
    """Set keys of several resources."""
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    resources = [
        resource(
            resource_type=kind,
            resource_name=name,
            configs=[resource.AlterableConfig(name=key, value=of[key]) for key in of],
        )
        for (kind, name), of in settings.items()
    ]
    answer = await client.ask(IncrementalAlterConfigsRequest(resources=resources))
    assert [response.error_code for response in answer.responses] == [0] * len(resources)


@asynccontextmanager
async def started_cluster(
    tmp_path: Path,
    brokers: int,
    **overrides: str,
) -> AsyncIterator[Cluster]:
    settings = {
        "replica_fetch_backoff_ms": "10",
        # A broker that stopped in order is taken for alive so long, and cannot come back sooner.
        "broker_session_timeout_ms": "3000",
        "broker_heartbeat_interval_ms": "500",
        "auto_leader_rebalance_enable": "false",
        **overrides,
    }
    homes = cluster_homes(tmp_path, ["controller"] + ["broker"] * brokers, **settings)

    async with running_cluster(homes) as nodes:
        yield Cluster(homes, nodes)


async def test_three_replicas_are_the_same_through_the_stop_of_their_leader(tmp_path: Path) -> None:
    async with started_cluster(tmp_path, 3) as cluster:
        topic_id = await cluster.create("t", [2, 3, 4])
        await cluster.produce(2, "t", b"a", b"b")
        await cluster.replicated("t", [2, 3, 4])
        await cluster.stop(2)
        await cluster.registered(topic_id, lambda r: r.leader == 3)
        await cluster.produce(3, "t", b"c")
        await cluster.start(2)
        await cluster.produce(3, "t", b"d")
        await cluster.registered(topic_id, lambda r: sorted(r.isr) == [2, 3, 4])
        await cluster.replicated("t", [2, 3, 4])
        assert cluster.replica(2, "t").log.epochs.entries == [(0, 0), (1, 2)]
        await cluster.stop(4)
        path = str(cluster.replica(4, "t").directory.path)
        checkpoint = read_offset_checkpoint(OsFileSystem(), f"{path}/{HIGH_WATERMARKS}")
        assert checkpoint[TopicPartition("t", 0)] == 4


async def test_the_preferred_leader_comes_back_by_itself(tmp_path: Path) -> None:
    async with started_cluster(
        tmp_path,
        2,
        auto_leader_rebalance_enable="true",
        leader_imbalance_check_interval_seconds="1",
    ) as cluster:
        topic_id = await cluster.create("t", [2, 3])
        await cluster.produce(2, "t", b"a")
        await cluster.stop(2)
        await cluster.registered(topic_id, lambda r: r.leader == 3)
        await cluster.produce(3, "t", b"b")
        await cluster.start(2)
        await cluster.registered(topic_id, lambda r: r.leader == 2 and sorted(r.isr) == [2, 3])
        await cluster.replicated("t", [2, 3])


async def test_an_unclean_leader_declares_its_log_recovered(tmp_path: Path) -> None:
    """Asked for by its setting alone, once nobody else is left (KIP-704)."""

    async with started_cluster(tmp_path, 2) as cluster:
        topic_id = await cluster.create("t", [2, 3])
        await cluster.produce(2, "t", b"a")
        await cluster.replicated("t", [2, 3])
        await cluster.stop(3)
        await cluster.registered(topic_id, lambda r: r.isr == (2,))
        await cluster.produce(2, "t", b"only here")
        async with connected(cluster.node(2)) as client:
            settings = {(ConfigResourceType.TOPIC, "t"): {"unclean.leader.election.enable": "true"}}
            await alter(client, settings)
        await cluster.stop(2)
        await cluster.start(3)
        await cluster.registered(topic_id, lambda r: (r.leader, r.isr) == (3, (3,)))
        await cluster.start(2)
        await cluster.registered(topic_id, lambda r: sorted(r.isr) == [2, 3])
        await cluster.registered(topic_id, lambda r: r.leader_recovery_state == 0)
        await cluster.replicated("t", [2, 3])
        assert b"only here" not in cluster.segments(2, "t")


async def test_a_follower_describes_the_producers_of_its_replica(tmp_path: Path) -> None:
    """A broker without a replica refuses (KIP-664)."""

    async def described(
        cluster: Cluster, node_id: int
    ) -> DescribeProducersResponse.TopicResponse.PartitionResponse:
        topic = DescribeProducersRequest.TopicRequest(name="t", partition_indexes=[0])
        async with connected(cluster.node(node_id)) as client:
            answer: DescribeProducersResponse = await client.ask(
                DescribeProducersRequest(topics=[topic])
            )
        return answer.topics[0].partitions[0]

    async with started_cluster(tmp_path, 3) as cluster:
        await cluster.create("t", [2, 3])
        batch = batch_of(b"a", producer_id=7, producer_epoch=0, base_sequence=0)
        async with connected(cluster.node(2)) as client:
            assert (await client.produce("t", 0, batch)).error_code == ErrorCode.NONE
        await cluster.replicated("t", [2, 3])
        of_leader, of_follower = await described(cluster, 2), await described(cluster, 3)
        assert [producer.producer_id for producer in of_leader.active_producers] == [7]
        assert of_follower == of_leader
        assert (await described(cluster, 4)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_leader_and_follower_have_rows_of_their_own(tmp_path: Path) -> None:
    async def rows_of(cluster: Cluster, node_id: int) -> PartitionRows:
        broker = cluster.node(node_id).broker
        assert broker is not None
        return await gather_rows(broker.replicas, broker.replica_fetchers)

    async with started_cluster(tmp_path, 2) as cluster:
        await cluster.create("t", [3, 2])
        await cluster.produce(3, "t", b"a", b"b")
        await cluster.replicated("t", [2, 3])
        here = 'topic="t",partition="0"'
        leader, follower = [await rows_of(cluster, node_id) for node_id in (3, 2)]
        assert leader.led == [(here, (2, 2, 0, 0, 0, 0))]
        assert leader.followed == []
        ((labels, values),) = follower.logs
        path = cluster.replica(2, "t").directory.path
        assert (labels, values[2:]) == (f'{here},log_dir="{path}"', (0, 2))
        assert follower.led == []
        assert follower.followed == [(f'{here},leader="3"', (0,))]


async def test_a_former_leader_gives_up_what_its_followers_never_had(tmp_path: Path) -> None:
    async with started_cluster(tmp_path, 2) as cluster:
        topic_id = await cluster.create("t", [3, 2])
        await cluster.produce(3, "t", b"a", b"b")
        await cluster.replicated("t", [2, 3])
        path = cluster.replica(3, "t").directory.path
        await cluster.stop(3)
        append_offline(path, "t", b"never", b"acknowledged")
        await cluster.registered(topic_id, lambda r: r.leader == 2)
        await cluster.produce(2, "t", b"c")
        await cluster.start(3)
        await cluster.registered(topic_id, lambda r: sorted(r.isr) == [2, 3])
        await cluster.replicated("t", [2, 3])
        assert b"never" not in cluster.segments(3, "t")


def append_offline(path: str, topic: str, *values: bytes) -> None:
    """Append records of the last epoch to the log of a broker that is down."""
    directory = DirectoryStore(OsFileSystem(), path)
    directory.load(lambda _: LogConfig(), 0)
    log = directory.logs[TopicPartition(topic, 0)]
    for value in values:
        records = bytearray(batch_of(value))
        epoch = log.epochs.latest
        assert epoch is not None
        patch_offset_and_epoch(records, 0, log.log_end_offset, epoch)
        log.append_as_follower(records, epoch)
    directory.close(-1)


async def test_a_topic_made_again_while_a_replica_was_away_never_mixes_with_the_one_before(
    tmp_path: Path,
) -> None:
    async with started_cluster(tmp_path, 2) as cluster:
        for name in ("t-made-again", "t-gone", "t-moved"):
            await cluster.create(name, [2, 3])
            await cluster.produce(2, name, b"of the former topic")
            await cluster.replicated(name, [2, 3])
        moved = cluster.node(CONTROLLER).publisher.image.topics.by_name["t-moved"]
        await cluster.stop(3)
        async with connected(cluster.node(2)) as client:
            deletion = DeleteTopicsRequest.DeleteTopicState
            await client.ask(
                DeleteTopicsRequest(
                    topics=[deletion(name="t-made-again"), deletion(name="t-gone")],
                    timeout_ms=5_000,
                )
            )
            topic = AlterPartitionReassignmentsRequest.ReassignableTopic
            part = topic.ReassignablePartition(partition_index=0, replicas=[2])
            await client.ask(
                AlterPartitionReassignmentsRequest(
                    topics=[topic(name="t-moved", partitions=[part])], timeout_ms=5_000
                )
            )
        again = await cluster.create("t-made-again", [2, 3])
        await cluster.registered(moved.topic_id, lambda r: r.replicas == (2,))
        await cluster.produce(2, "t-made-again", b"new")
        await cluster.start(3)
        await cluster.registered(again, lambda r: sorted(r.isr) == [2, 3])
        await cluster.replicated("t-made-again", [2, 3])
        assert cluster.folders(3) == [
            "t-gone-0-stray",
            "t-made-again-0",
            "t-made-again-0-stray",
            "t-moved-0-stray",
        ]
        assert b"former" not in cluster.segments(3, "t-made-again")


async def test_a_topic_made_again_while_its_former_replica_is_put_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker hears of both topics one after the other, as fast as can be."""
    made_again: list[bytes] = []

    async with started_cluster(tmp_path, 2) as cluster:
        await cluster.create("t", [2, 3])
        await cluster.produce(2, "t", b"of the former topic")
        await cluster.replicated("t", [2, 3])
        await cluster.stop(3)
        async with connected(cluster.node(2)) as client:
            topic = DeleteTopicsRequest.DeleteTopicState(name="t")
            await client.ask(DeleteTopicsRequest(topics=[topic], timeout_ms=5_000))
        put_aside = ReplicaManager.put_aside_strays

        async def hindered(replicas: ReplicaManager) -> None:
            broker = cluster.node(3).broker
            if broker is not None and replicas is broker.replicas and not made_again:
                async with connected(cluster.node(2)) as client:
                    made_again.append(await create_replicated(client, "t", [2, 3]))
                await until(lambda: made_again[0] in cluster.node(3).publisher.image.topics.by_id)
            await put_aside(replicas)

        monkeypatch.setattr(ReplicaManager, "put_aside_strays", hindered)
        await cluster.start(3)
        await cluster.produce(2, "t", b"new")
        await cluster.registered(made_again[0], lambda r: sorted(r.isr) == [2, 3])
        await cluster.replicated("t", [2, 3])
        assert cluster.folders(3) == ["t-0", "t-0-stray"]
        assert b"former" not in cluster.segments(3, "t")


async def test_replication_takes_over_settings_while_it_runs(tmp_path: Path) -> None:
    async with started_cluster(tmp_path, 2) as cluster:
        await cluster.create("t", [2, 3])
        await cluster.produce(2, "t", b"a")
        broker = cluster.node(3).broker
        assert broker is not None
        settings = {
            (ConfigResourceType.BROKER, "3"): {
                "num.replica.fetchers": "2",
                "follower.replication.throttled.rate": "7",
            },
            (ConfigResourceType.TOPIC, "t"): {"follower.replication.throttled.replicas": "0:3"},
        }
        async with connected(cluster.node(3)) as client:
            await alter(client, settings)
        assert await broker.metadata.wait_for(lambda i: bool(i.configs.topic("t")), 60)
        assert broker.replication_quotas.follower.limit_bytes_per_s == 7
        (task,) = broker.replica_fetchers
        assert [followed.is_throttled for followed in task.fetcher] == [True]
        await cluster.produce(2, "t", b"b")
        await cluster.replicated("t", [2, 3])


async def test_a_follower_whose_directory_dies_leaves_the_isr_and_its_other_replicas_continue(
    tmp_path: Path,
) -> None:
    async with started_cluster(tmp_path, 2) as cluster:
        ids = [await cluster.create(name, [2, 3]) for name in ("t1", "t2")]
        dead = cluster.replica(3, "t2").directory
        assert cluster.replica(3, "t1").directory is not dead
        await cluster.registered(ids[1], lambda r: r.directory(3) == dead.directory_id)
        dead.executor.fail("the disk is gone")
        await cluster.registered(ids[1], lambda r: r.isr == (2,))
        for name in ("t1", "t2"):
            await cluster.produce(2, name, b"a")
        await cluster.replicated("t1", [2, 3])
        assert cluster.segments(3, "t2") == b""
        broker = cluster.node(3).broker
        assert broker is not None
        (task,) = broker.replica_fetchers
        assert [followed.topic for followed in task.fetcher] == ["t1"]
