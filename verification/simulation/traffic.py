"""The clients that use the cluster during a simulation."""

import asyncio
from collections.abc import Collection, Coroutine
from random import Random
from typing import Any, Final

from spindle.common.ids import OFFSETS_TOPIC, TopicPartition
from spindle.common.uuids import DIRECTORY_LOST
from spindle.coordinator.partitioning import partition_for
from spindle.protocol.sentinels import ACKS_ALL
from spindle.raft.ready import Destination
from verification.simulation.admin import Admin
from verification.simulation.client import SimulatedClient
from verification.simulation.clock import SkewedClock
from verification.simulation.cluster import BROKER_PORT, SimulatedCluster
from verification.simulation.consumer import Consumer, GroupOffsets
from verification.simulation.consumer_group_members import (
    FENCED_BY_CONVERSION,
    ConsumerGroupMember,
    ConsumerGroupMembers,
    ConsumerGroupOracle,
)
from verification.simulation.group_members import (
    ANSWER_S,
    REBALANCE_MS,
    GroupLink,
    GroupMember,
    MembersOfGroup,
    StaleMember,
)
from verification.simulation.group_oracle import GroupOracle
from verification.simulation.incarnation import Life
from verification.simulation.invariants import Invariants
from verification.simulation.loop import SimulatedLoop
from verification.simulation.producer import Producer
from verification.simulation.rolling_members import RollingMember
from verification.simulation.settings import SettingsAdmin
from verification.simulation.share_workers import (
    ShareOracle,
    ShareWorker,
    begin_with_the_first_record,
    undelivered,
)
from verification.simulation.topic import Topic
from verification.simulation.trace import History
from verification.simulation.transaction_traffic import TransactionTraffic
from verification.simulation.verdict import Verdict
from verification.simulation.voters import VoterAdmin

CLIENT_HOST = "client"
_DELETE_RETENTION_MS: Final = 3_000


class SimulatedTraffic:
    """Clients on a host of their own.

    Attributes:
        topics: those that live.
        voters: whoever changes the voters.
    """

    def __init__(
        self,
        cluster: SimulatedCluster,
        invariants: Invariants,
        verdict: Verdict,
        history: History,
        loop: SimulatedLoop,
        random: Random,
    ) -> None:
        self.topics: list[Topic] = []
        self._single: list[Topic] = []
        """Topics with one replica, which lanes serve to producers with acks=all."""
        self._cluster = cluster
        self._invariants = invariants
        self._verdict = verdict
        self._history = history
        self._loop = loop
        self._random = random
        # A follower of a partition that is idle has everything when it is moved away.
        self._longest_pause_s = 2.0 if cluster.scenario.deeds.returns else 0.3
        self._moves = Random(f"moves of {cluster.scenario.seed}")
        churn = random.choice((0.1, 0.1, 0.5))
        # Cordons matter where topics are created.
        self._churn = 0.5 if cluster.scenario.deeds.cordons else churn
        self._context = Life(CLIENT_HOST, 1, SkewedClock()).context()
        self._client = self._context.run(self._new_client, "admin")
        self._admin = Admin(self._client, invariants.metadata, verdict, history)
        self.voters = VoterAdmin(self._client, cluster, history, Random(random.randbytes(8)))
        self._settings = SettingsAdmin(
            self._client, invariants.metadata, verdict, history, Random(random.randbytes(8))
        )
        self._transactions = TransactionTraffic(
            cluster.scenario,
            invariants.metadata,
            verdict,
            self._spawn,
            lambda name: self._context.run(self._new_client, name),
        )
        self._tasks: list[asyncio.Task[None]] = []
        self._writers: list[tuple[Producer, asyncio.Task[None]]] = []
        self._consumers: list[tuple[Topic, Consumer]] = []
        self._groups: list[MembersOfGroup] = []
        self._consumer_groups: list[ConsumerGroupMembers] = []
        self._shares: ShareOracle | None = None
        self._is_writing = True
        self._is_administering = True
        self._finished_s = 0.0
        self._is_over = False
        self._admin_task: asyncio.Task[None] | None = None
        self._movers: list[asyncio.Task[None]] = []
        self._producer_count = 0

    def start(self) -> None:
        self._admin_task = self._spawn(self._administer())
        if self._cluster.scenario.deeds.returns:
            self._movers.append(self._spawn(self._return_replicas()))
        if self._cluster.scenario.deeds.directories:
            self._movers.append(self._spawn(self._move_replicas()))
        scenario = self._cluster.scenario
        if scenario.has_lanes and not (scenario.chances.is_lossy or scenario.deeds.unclean):
            self._movers.append(self._spawn(self._administer_single()))
        if self._cluster.scenario.deeds.cordons:
            self._movers.append(self._spawn(self._cordon_directories()))

    @property
    def unfinished(self) -> str | None:
        """The work that clients still wait for; None if they have finished."""
        if self.unfinished_administration is not None:
            return self.unfinished_administration
        for producer, task in self._writers:
            if not task.done():
                return producer.waits_for
        for topic, consumer in self._consumers:
            if not topic.is_deleted and not consumer.has_everything:
                return consumer.waits_for
        for group in self._groups:
            stuck_reason = group.stuck_reason(self._finished_s)
            if stuck_reason is not None:
                return stuck_reason
        for consumers in self._consumer_groups:
            stuck_reason = consumers.stuck_reason(
                self._finished_s, self._invariants.metadata.newest
            )
            if stuck_reason is not None:
                return stuck_reason
        if self._shares is not None:
            lacking = undelivered(self.topics, self._shares, self._invariants.records)
            if lacking is not None:
                return lacking
        return self._transactions.unfinished

    @property
    def acknowledged(self) -> int:
        return sum(producer.acknowledged for producer, _ in self._writers)

    def acknowledged_by_producer(self) -> dict[str, int]:
        """Return how many records of each producer at work were acknowledged."""
        return {
            producer.name: producer.acknowledged
            for producer, task in self._writers
            if not task.done()
        }

    def producers_of(self, partitions: Collection[tuple[str, int]]) -> set[str]:
        """Return the names of the producers that write to these partitions."""
        return {producer.name for producer, _ in self._writers if producer.partition in partitions}

    @property
    def unfinished_administration(self) -> str | None:
        """The admin's work that is not done yet; None if there is none."""
        if self._admin_task is not None and not self._admin_task.done():
            return f"the admin: {self._admin.waits_for}"
        return None if all(task.done() for task in self._movers) else "the admins of directories"

    def end_administration(self) -> None:
        """Stop changing the cluster; producers and consumers continue."""
        self._is_administering = False

    def finish(self) -> None:
        """Begin nothing new."""
        self._is_administering = self._is_writing = False
        self._transactions.finish()
        self._finished_s = self._loop.now_s

    async def audit(self) -> None:
        """Check the history of the transactional clients, which have finished."""
        await self._transactions.audit()

    async def stop(self) -> None:
        self._is_over = True
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- the clients

    @property
    def _moving(self) -> list[Topic]:
        """The topics whose replicas move."""
        return [*self.topics, *self._transactions.topics]

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work, context=self._context.copy())
        task.add_done_callback(self._ended)
        self._tasks.append(task)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._verdict.violated(f"a client failed: {task.exception()!r}")

    def _new_client(self, name: str) -> SimulatedClient:
        return SimulatedClient(name, self._cluster.bootstrap, Random(self._random.randbytes(8)))

    async def _administer(self) -> None:
        random, admin = self._random, self._admin
        brokers = [node.plan.node_id for node in self._cluster.brokers]
        factor = min(3, len(brokers))
        names = ["flights", "weather"][: random.randint(1, 2)]
        for name in names:
            await self._open(name, random.randint(1, 2), factor)
        await self._open_groups(names, factor)
        if self._cluster.scenario.deeds.transactions:
            await self._transactions.create(admin, factor, self._invariants.records)
            self._transactions.open()
        while self._is_administering:
            await asyncio.sleep(random.uniform(0.2, 2.0))
            chance = random.random()
            topic = random.choice(self.topics)
            if chance < self._churn:
                await admin.delete(topic)
                self.topics.remove(topic)
                await self._open(topic.name, topic.partitions, factor)
            elif chance < 0.6:
                await admin.elect_preferred()
            elif chance < 0.9:
                replicas = random.sample(brokers, factor)
                moved = random.choice(self._moving) if self._transactions.topics else topic
                await admin.reassign(moved, random.randrange(moved.partitions), replicas)
            deeds = self._cluster.scenario.deeds
            if deeds.voters:
                await self.voters.change()
            await self._settings.change_some(self._cluster.scenario, random, brokers, self.topics)
            if topic.may_lose and not topic.is_deleted and random.random() < 0.5:
                await admin.elect_uncleanly(topic.name, range(topic.partitions))
            if topic.may_trim and not topic.is_deleted and random.random() < 0.5:
                await self._trim(topic, random.randrange(topic.partitions))
        if self._cluster.scenario.deeds.voters:
            admin.waits_for = "the voters"
            await self.voters.complete()

    async def accept_losses(self) -> None:
        """Elect other replicas where a broker waits for a log that it never had.

        It waits because its directory has lost the checkpoints that would show whether it had any
        records, or has those of an earlier topic of the same name, whose entries have no topic id.
        The controller was told that the directory of the log is lost, so the broker waits after a
        restart, too. Where the other replicas have records, some of them may be lost.
        """
        while True:
            await asyncio.sleep(1.0)
            former = set(self._admin.deleted.values())
            for topic in list(self._invariants.metadata.newest.topics.by_name.values()):
                for index, partition in topic.partitions.items():
                    if partition.leader >= 0:
                        continue
                    oracle = self._invariants.records.find(topic.topic_id, index)
                    is_named_again = topic.name in former
                    is_lost = DIRECTORY_LOST in partition.directories
                    if is_named_again and is_lost and oracle is not None:
                        oracle.may_lose = True
                    elif oracle is not None and oracle.end_offset:
                        continue
                    may_be_lost = is_lost and (self._loses_checkpoints or is_named_again)
                    if may_be_lost or self._is_awaited(topic.name, index):
                        await self._admin.elect_uncleanly(topic.name, [index])

    @property
    def _loses_checkpoints(self) -> bool:
        chances = self._cluster.scenario.chances
        return bool(chances.checkpoints or chances.outage or chances.vanish)

    def _is_awaited(self, topic: str, index: int) -> bool:
        brokers = [n.node.broker for n in self._cluster.brokers if n.node is not None]
        lacking = [b.replicas.missing.get(TopicPartition(topic, index)) for b in brokers if b]
        return any(d is not None and d.store.has_lost_checkpoints for d in lacking)

    async def _return_replicas(self) -> None:
        """Move partitions away from one broker each, and back to it soon after."""
        moves = self._moves
        admin = Admin(
            self._new_client("mover"), self._invariants.metadata, self._verdict, self._history
        )
        brokers = [node.plan.node_id for node in self._cluster.brokers]
        while self._is_administering:
            await asyncio.sleep(moves.uniform(0.1, 0.8))
            if not self.topics:
                continue
            topic = moves.choice(self._moving)
            index, removed = moves.randrange(topic.partitions), moves.choice(brokers)
            others = [broker_id for broker_id in brokers if broker_id != removed]
            # Several times in a row: each removal begins a leader epoch, so that a leader which
            # learns all of them at once misses epochs.
            for _ in range(moves.choice((1, 2, 3))):
                await admin.reassign(topic, index, others)
                await asyncio.sleep(moves.choice((0.0, 0.05, 0.3)))
                await admin.reassign(topic, index, [*others, removed])

    async def _administer_single(self) -> None:
        """Create a topic with one replica, and reassign its partitions to other brokers."""
        random = Random(f"single replicas of {self._cluster.scenario.seed}")
        admin = Admin(
            self._new_client("mover"), self._invariants.metadata, self._verdict, self._history
        )
        brokers = [node.plan.node_id for node in self._cluster.brokers]
        configs = {"min.insync.replicas": "1"}
        topic = await admin.create("gates", random.randint(1, 2), 1, configs)
        self._single.append(topic)
        for index in range(topic.partitions):
            self._produce(topic, index)
            self._consume(topic, index)
        while self._is_administering:
            await asyncio.sleep(random.uniform(0.5, 4.0))
            index = random.randrange(topic.partitions)
            await admin.reassign(topic, index, [random.choice(brokers)])

    async def _move_replicas(self) -> None:
        """Move replicas between directories, also while they move already."""
        random = Random(f"moves of {self._cluster.scenario.seed}")
        while self._is_administering:
            await asyncio.sleep(random.uniform(0.1, 1.0))
            if not self.topics:
                continue
            topic = random.choice([*self._moving, *self._single])
            broker = random.choice(self._cluster.brokers)
            place = Destination(broker.plan.node_id, broker.host, BROKER_PORT)
            path = random.choice(broker.config.log_dirs)
            index = random.randrange(topic.partitions)
            self._invariants.asked_moves.add(
                (broker.plan.node_id, TopicPartition(topic.name, index), path)
            )
            await self._admin.move(topic, index, place, path)

    async def _cordon_directories(self) -> None:
        """Cordon directories and whole brokers, and remove all cordons at the end."""
        random = Random(f"cordons of {self._cluster.scenario.seed}")
        while self._is_administering:
            await asyncio.sleep(random.uniform(0.2, 2.0))
            broker = random.choice(self._cluster.brokers)
            paths = broker.config.log_dirs
            some = ",".join(random.sample(paths, random.randint(1, len(paths))))
            value = random.choice((some, some, some, "*", None, None))
            await self._settings.cordon(broker.plan.node_id, value)
        for broker in self._cluster.brokers:
            while not await self._settings.cordon(broker.plan.node_id, None):
                await self._client.pause()

    async def _open(self, name: str, partitions: int, replication_factor: int) -> None:
        configs: dict[str, str] = {}
        may_lose = self._cluster.scenario.deeds.unclean and self._random.random() < 0.7
        if may_lose:
            configs["min.insync.replicas"] = self._random.choice(("1", "1", "2"))
            if self._random.random() < 0.7:
                configs["unclean.leader.election.enable"] = "true"
        policies = self._draw_policies()
        if policies:
            configs["cleanup.policy"] = ",".join(policies)
            configs["segment.ms"] = "500"
            configs["min.cleanable.dirty.ratio"] = "0.01"
            configs["delete.retention.ms"] = str(_DELETE_RETENTION_MS)
            if self._cluster.scenario.deeds.small_segments:
                configs["internal.segment.bytes"] = str(self._random.randint(300, 1500))
        if "delete" in policies:
            configs["retention.ms"] = self._random.choice(("2000", "5000", "-1"))
        topic = await self._admin.create(name, partitions, replication_factor, configs)
        topic.may_lose = may_lose
        topic.may_trim = "delete" in policies
        self.topics.append(topic)
        for index in range(partitions):
            oracle = self._invariants.records.of(topic.topic_id, name, index)
            oracle.may_lose = may_lose
            oracle.is_compacted = "compact" in policies
            if self._cluster.scenario.are_clocks_right:
                oracle.delete_retention_s = _DELETE_RETENTION_MS / 1000
            for _ in range(self._random.randint(1, 2)):
                self._produce(topic, index)
            if self._cluster.scenario.has_lanes:
                self._produce(topic, index, acks=1)
            self._consume(topic, index)

    async def _open_groups(self, topics: list[str], factor: int) -> None:
        deeds = self._cluster.scenario.deeds
        if deeds.members:
            self._open_group("members", Random(f"{self._cluster.scenario.seed}: members"))
        if deeds.consumers:
            self._open_consumer_group("consumers", topics)
        if deeds.rolls:
            await self._open_rolling_group("rolling", factor)
        if deeds.shares:
            self._shares = ShareOracle(self._verdict)
            self._spawn(self._open_share_group(topics, self._shares))

    def _open_group(self, group_id: str, random: Random) -> None:
        """Start two dynamic and two static members; one at least has a time to rejoin."""
        chances = self._cluster.scenario.chances
        is_heard = not (chances.silence or chances.is_lossy)
        oracle = GroupOracle(group_id, self._verdict)
        members: list[GroupMember] = []

        def link(name: str) -> tuple[SimulatedClient, GroupLink]:
            timeout_s = ANSWER_S if is_heard else 8.0
            source = Random(random.randbytes(8))
            client = SimulatedClient(name, self._cluster.bootstrap, source, timeout_s)
            finder = SimulatedClient(name, self._cluster.bootstrap, source)
            return client, GroupLink(
                group_id, client, finder, self._verdict, self._life_of if is_heard else None
            )

        for number, instance_id in enumerate((None, None, "static1", "static2")):
            client, own_link = self._context.run(link, f"member{number}")
            offsets = None
            if not number:
                committer = self._context.run(self._new_client, "committer")
                offsets = GroupOffsets(group_id, committer, self.topics[0], 0, self._verdict)
            member = GroupMember(
                oracle,
                own_link,
                client,
                Random(random.randbytes(8)),
                instance_id=instance_id,
                rebalance_ms=random.choice((REBALANCE_MS, 0, -(2**31))) if number else REBALANCE_MS,
                offsets=offsets,
            )
            members.append(member)
            self._spawn(member.run(lambda: self._is_writing, lambda: self._loop.now_s))
        _, own_link = self._context.run(link, "impostor")
        impostor = StaleMember(oracle, own_link, members, Random(random.randbytes(8)))
        self._spawn(impostor.run(lambda: self._is_writing))
        self._groups.append(MembersOfGroup(oracle, members))

    def _open_consumer_group(self, group_id: str, topics: list[str]) -> None:
        """Start three members of the consumer protocol."""
        random = Random(f"{self._cluster.scenario.seed}: {group_id}")
        oracle = ConsumerGroupOracle(group_id, self._verdict)
        assignor = random.choice(("uniform", "range"))
        for number in range(3):
            name = f"consumer{number}"
            source = Random(random.randbytes(8))
            client = self._context.run(
                SimulatedClient, name, self._cluster.bootstrap, Random(random.randbytes(8))
            )
            member = ConsumerGroupMember(
                name, oracle, client, topics, assignor, source, self._verdict
            )
            self._spawn(member.run(lambda: self._is_writing, lambda: self._loop.now_s))
        self._consumer_groups.append(ConsumerGroupMembers(oracle, topics))

    async def _open_rolling_group(self, group_id: str, factor: int) -> None:
        """Start four members that change their protocol, with a topic of their own."""
        random = Random(f"{self._cluster.scenario.seed}: {group_id}")
        topic = await self._admin.create(group_id, random.randint(2, 5), factor, {})
        oracle = ConsumerGroupOracle(
            group_id, self._verdict, FENCED_BY_CONVERSION, lambda: self._leader_epoch(group_id)
        )
        for number in range(4):
            name = f"{group_id}{number}"
            source = Random(random.randbytes(8))
            client = self._context.run(
                SimulatedClient, name, self._cluster.bootstrap, Random(random.randbytes(8))
            )
            member = RollingMember(name, oracle, client, topic, source, self._verdict)
            self._spawn(member.run(lambda: self._is_writing, lambda: self._loop.now_s))
        self._consumer_groups.append(ConsumerGroupMembers(oracle, [topic.name]))

    async def _open_share_group(self, topics: list[str], oracle: ShareOracle) -> None:
        """Start three workers that read these topics from the first record on."""
        random = Random(f"{self._cluster.scenario.seed}: shares")
        await begin_with_the_first_record(self._context.run(self._new_client, "share-admin"))
        for number in range(3):
            name, source = f"worker{number}", Random(random.randbytes(8))
            client = self._context.run(
                SimulatedClient, name, self._cluster.bootstrap, Random(random.randbytes(8))
            )
            worker = ShareWorker(name, client, topics, oracle, source, self._verdict)
            self._spawn(worker.run(lambda: self._is_writing, lambda: self._loop.now_s))

    def _leader_epoch(self, group_id: str) -> int:
        """Return the leader epoch of the partition that has the group; -1 before there is one."""
        topic = self._invariants.metadata.newest.topics.by_name.get(OFFSETS_TOPIC)
        if topic is None:
            return -1
        return topic.partitions[partition_for(group_id, len(topic.partitions))].leader_epoch

    def _life_of(self, node_id: int) -> object:
        return self._cluster.nodes[node_id].life

    def _draw_policies(self) -> list[str]:
        """Return the policies by which a new topic loses old records, by chance."""
        deeds, policies = self._cluster.scenario.deeds, []
        if deeds.compacts and self._random.random() < 0.8:
            policies.append("compact")
        if deeds.trims and self._random.random() < 0.8:
            policies.append("delete")
        return policies

    async def _trim(self, topic: Topic, index: int) -> None:
        oracle = self._invariants.records.of(topic.topic_id, topic.name, index)
        offset = self._random.choice((-1, self._random.randint(0, oracle.end_offset)))
        await self._admin.delete_records(topic, index, offset)

    def _produce(self, topic: Topic, index: int, acks: int = ACKS_ALL) -> None:
        self._producer_count += 1
        name = f"producer{self._producer_count}"
        producer = Producer(
            name,
            self._new_client(name),
            topic,
            index,
            self._invariants.records,
            self._verdict,
            self._history,
            acks,
        )
        self._writers.append((producer, self._spawn(self._write(producer))))

    async def _write(self, producer: Producer) -> None:
        await producer.start()
        while self._is_writing and await producer.send():  # noqa: ASYNC110 - a client's pace
            await asyncio.sleep(self._random.uniform(0.01, self._longest_pause_s))

    def _consume(self, topic: Topic, index: int) -> None:
        client = self._new_client("consumer")
        consumer = Consumer(client, topic, index, self._invariants.records, self._verdict)
        self._consumers.append((topic, consumer))
        self._spawn(self._read(topic, consumer))
        group = GroupOffsets(f"group of {topic.name}", client, topic, index, self._verdict)
        self._spawn(self._commit(topic, consumer, group))

    async def _read(self, topic: Topic, consumer: Consumer) -> None:
        while not self._is_over and not topic.is_deleted:
            await consumer.poll()
            await asyncio.sleep(self._random.uniform(0.0, 0.1))

    async def _commit(self, topic: Topic, consumer: Consumer, group: GroupOffsets) -> None:
        while not self._is_over and not topic.is_deleted:
            await asyncio.sleep(self._random.uniform(0.1, 0.8))
            if consumer.position > group.committed:
                await group.commit(consumer.position)
            elif group.committed >= 0:
                await group.check()
