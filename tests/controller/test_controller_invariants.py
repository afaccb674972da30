"""Random operations on a small cluster, and the invariants that must hold after each.

The seed is the parameter of the test; the operations of a seed are always the same.
"""

from random import Random
from typing import Any

import pytest
from controller_harness import Harness, registration, uuid

from spindle.common.ids import NO_LEADER
from spindle.metadata.image import MetadataImage
from spindle.protocol.messages.alter_partition import AlterPartitionRequest
from spindle.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
)
from spindle.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from spindle.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from spindle.protocol.messages.create_partitions import CreatePartitionsRequest
from spindle.protocol.messages.create_topics import CreateTopicsRequest
from spindle.protocol.messages.delete_topics import DeleteTopicsRequest
from spindle.protocol.messages.elect_leaders import ElectLeadersRequest
from spindle.protocol.messages.unregister_broker import UnregisterBrokerRequest

BROKERS = (1, 2, 3, 4)


class RandomCluster:
    """Brokers that start, stop, fail and send outdated epochs, with one controller."""

    def __init__(self, seed: int, metadata_version: int) -> None:
        self.random = Random(seed)
        self.node = Harness(metadata_version=metadata_version)
        self.epochs: dict[int, int] = {}
        self.failed: dict[int, list[bytes]] = {}
        self.stopping: dict[int, None] = {}
        self.incarnation = 0
        self.topic_count = 0

    @property
    def image(self) -> MetadataImage:
        return self.node.driver.speculative_image

    async def step(self) -> None:
        """Apply one random operation, more often a harmless one."""
        actions = (
            self.beat, self.beat, self.beat, self.beat, self.register, self.create, self.create,
            self.delete, self.grow, self.alter_isr, self.alter_isr, self.alter_isr, self.reassign,
            self.reassign, self.elect, self.expire, self.stop, self.assign, self.fail_directory,
            self.unregister,
        )  # fmt: skip
        await self.random.choice(actions)()
        self.node.now_ms += self.random.randrange(0, 900)

    def directories(self, broker_id: int) -> list[bytes]:
        return [uuid(broker_id * 10 + index) for index in range(3)]

    def known(self) -> list[int]:
        return [b for b in BROKERS if b in self.epochs and b in self.image.cluster.brokers]

    def topic_names(self) -> list[str]:
        return list(self.image.topics.by_name)

    async def beat(self) -> None:
        for broker_id in self.known():
            if self.random.random() < 0.9:
                await self.send_heartbeat(broker_id)

    async def send_heartbeat(self, broker_id: int, **fields: Any) -> None:
        """Send a heartbeat; a process that began to stop goes on stopping until it is gone."""
        fields.setdefault("current_metadata_offset", self.node.quorum.end_offset - 1)
        fields["want_shut_down"] = broker_id in self.stopping
        request = BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=self.epochs[broker_id],
            offline_log_dirs=self.failed.get(broker_id, []),
            cordoned_log_dirs=[],
            **fields,
        )
        answer = await self.node.request(request)
        if answer.should_shut_down:
            del self.epochs[broker_id]

    async def register(self) -> None:
        broker_id = self.random.choice(BROKERS)
        self.incarnation += 1
        previous = self.epochs.get(broker_id, -1) if self.random.random() < 0.5 else -1
        request = registration(
            broker_id,
            self.incarnation,
            self.directories(broker_id),
            previous_broker_epoch=previous,
            rack=self.random.choice((None, "a", "b")),
        )
        answer = await self.node.request(request)
        if answer.error_code == 0:
            self.epochs[broker_id] = answer.broker_epoch
            self.failed.pop(broker_id, None)
            self.stopping.pop(broker_id, None)

    async def create(self) -> None:
        self.topic_count += 1
        configs = CreateTopicsRequest.CreatableTopic.CreatableTopicConfig
        topic = CreateTopicsRequest.CreatableTopic(
            name=f"t{self.topic_count}",
            num_partitions=self.random.randrange(1, 4),
            replication_factor=self.random.randrange(1, 4),
            configs=[configs(name="min.insync.replicas", value=self.random.choice("12"))],
        )
        if self.random.random() < 0.2:
            topic.configs.append(configs(name="unclean.leader.election.enable", value="true"))
        await self.node.request(CreateTopicsRequest(topics=[topic]))

    async def delete(self) -> None:
        if len(self.topic_names()) > 5:
            name = self.random.choice(self.topic_names())
            state = DeleteTopicsRequest.DeleteTopicState(name=name)
            await self.node.request(DeleteTopicsRequest(topics=[state]))

    async def grow(self) -> None:
        if self.topic_names():
            name = self.random.choice(self.topic_names())
            count = len(self.image.topics.by_name[name].partitions) + 1
            topic = CreatePartitionsRequest.CreatePartitionsTopic(
                name=name, count=count, assignments=None
            )
            await self.node.request(CreatePartitionsRequest(topics=[topic]))

    async def alter_isr(self) -> None:
        data = AlterPartitionRequest.TopicData
        for topic in self.image.topics.by_id.values():
            for partition_id, partition in topic.partitions.items():
                if partition.leader not in self.known() or self.random.random() < 0.5:
                    continue
                others = [r for r in partition.replicas if r != partition.leader]
                isr = [partition.leader, *[r for r in others if self.random.random() < 0.7]]
                proposal = data.PartitionData(
                    partition_index=partition_id,
                    leader_epoch=partition.leader_epoch,
                    partition_epoch=partition.partition_epoch,
                    new_isr_with_epochs=[
                        data.PartitionData.BrokerState(
                            broker_id=r, broker_epoch=self.epochs.get(r, 0)
                        )
                        for r in isr
                    ],
                )
                request = AlterPartitionRequest(
                    broker_id=partition.leader,
                    broker_epoch=self.epochs[partition.leader],
                    topics=[data(topic_id=topic.topic_id, partitions=[proposal])],
                )
                await self.node.request(request)
                return

    async def reassign(self) -> None:
        if not self.topic_names():
            return
        ask = AlterPartitionReassignmentsRequest.ReassignableTopic
        target = self.random.sample(BROKERS, self.random.randrange(1, 4))
        partition = ask.ReassignablePartition(
            partition_index=0, replicas=None if self.random.random() < 0.3 else target
        )
        topic = ask(name=self.random.choice(self.topic_names()), partitions=[partition])
        await self.node.request(AlterPartitionReassignmentsRequest(topics=[topic]))

    async def elect(self) -> None:
        kind = self.random.randrange(2)
        await self.node.request(ElectLeadersRequest(election_type=kind, topic_partitions=None))

    async def expire(self) -> None:
        self.node.pass_time(self.random.choice((1000, 10_500)))

    async def stop(self) -> None:
        if self.known() and self.random.random() < 0.5:
            broker_id = self.random.choice(self.known())
            self.stopping[broker_id] = None
            await self.send_heartbeat(broker_id)

    async def assign(self) -> None:
        if not self.known():
            return
        broker_id = self.random.choice(self.known())
        data = AssignReplicasToDirsRequest.DirectoryData
        topics = [
            data.TopicData(
                topic_id=topic.topic_id,
                partitions=[data.TopicData.PartitionData(partition_index=0)],
            )
            for topic in self.image.topics.by_id.values()
        ]
        directory = self.random.choice(self.directories(broker_id))
        request = AssignReplicasToDirsRequest(
            broker_id=broker_id,
            broker_epoch=self.epochs[broker_id],
            directories=[data(id=directory, topics=topics)],
        )
        await self.node.request(request)

    async def fail_directory(self) -> None:
        if self.known() and self.random.random() < 0.4:
            broker_id = self.random.choice(self.known())
            failed = self.failed.setdefault(broker_id, [])
            if len(failed) < 2:
                failed.append(self.directories(broker_id)[len(failed)])
            await self.send_heartbeat(broker_id)

    async def unregister(self) -> None:
        if self.known() and self.random.random() < 0.2:
            request = UnregisterBrokerRequest(broker_id=self.random.choice(self.known()))
            await self.node.request(request)


def check(before: MetadataImage, now: MetadataImage) -> None:
    """Check the invariants of partitions that any sequence of operations must keep."""
    now.check()
    for topic in now.topics.by_id.values():
        old_topic = before.topics.by_id.get(topic.topic_id)
        for partition_id, p in topic.partitions.items():
            where = f"{topic.name}-{partition_id}: {p}"
            assert all(r in p.replicas for r in (*p.adding_replicas, *p.removing_replicas)), where
            assert not [r for r in p.adding_replicas if r in p.removing_replicas], where
            assert not [r for r in p.elr if r in p.isr], where
            if p.leader != NO_LEADER:
                assert p.leader in p.isr, where
                broker = now.cluster.brokers[p.leader]
                assert broker.is_active, where
                assert broker.has_online_directory(p.directory(p.leader)), where
            if now.features.is_elr_enabled:
                assert all(r in now.cluster.brokers for r in p.isr), where
                assert not any(now.cluster.brokers[r].is_fenced for r in p.isr), where
            else:
                assert p.isr, where
                assert (p.elr, p.last_known_elr) == ((), ()), where
            old = old_topic.partitions.get(partition_id) if old_topic else None
            if old is not None:
                assert p.partition_epoch >= old.partition_epoch, where
                assert p.leader_epoch >= old.leader_epoch, where
                if p.leader != old.leader:
                    assert p.leader_epoch > old.leader_epoch, where


@pytest.mark.parametrize("metadata_version", [25, 30])
@pytest.mark.parametrize("seed", range(40))
async def test_the_image_stays_sound_under_random_events(seed: int, metadata_version: int) -> None:
    cluster = RandomCluster(seed, metadata_version)
    cluster.node.quorum.become_leader(1, 1)
    for _ in range(120):
        before = cluster.image
        await cluster.step()
        check(before, cluster.image)
    cluster.node.quorum.commit()
    assert cluster.node.publisher.image.topics == cluster.image.topics
    assert cluster.node.publisher.image.cluster == cluster.image.cluster
