"""Invariants that are checked after every event, on the host of the event.

A directory is offline only if its disk reported an error or hung.

Partitions: a leader epoch has one leader. The leader and every member of the ISR have all committed
records. The high watermark of a leader does not fall. Below a high watermark all replicas have the
same records. A partition's log has the partition's topic id. For metadata see `metadata_oracle`.
"""

from collections.abc import Iterator
from typing import Any

from spindle.common.ids import TopicPartition
from spindle.common.uuids import Uuid, uuid_text
from spindle.log.log import Log
from spindle.metadata.image import MetadataImage
from spindle.metadata.partitions import PartitionRegistration
from spindle.protocol.records.batch import batches
from spindle.raft.core import QuorumCore
from spindle.raft.roles import Leader
from spindle.replicas.partition import Partition
from spindle.replication.leader_state import IsrProposal, LeaderState
from spindle.runtime.node import Node
from verification.simulation.cluster import SimulatedCluster, SimulatedNode
from verification.simulation.directory_oracle import DirectoryOracle
from verification.simulation.election_oracle import ElectionOracle
from verification.simulation.feature_oracle import FeatureOracle
from verification.simulation.incarnation import Life
from verification.simulation.lane_leases import up_to_date
from verification.simulation.metadata_oracle import MetadataOracle, MetadataWatcher
from verification.simulation.move_oracle import MoveOracle
from verification.simulation.placement_oracle import PlacementOracle
from verification.simulation.quorum_checks import QuorumChecks
from verification.simulation.record_oracle import PartitionOracle, RecordOracle, common_offset
from verification.simulation.trace import History
from verification.simulation.transaction_index_checks import wrong_answers
from verification.simulation.verdict import Verdict

_READ_BYTES = 1 << 20


class _Replica:
    """The state of one replica at the last check, in one life of its node."""

    __slots__ = (
        "checked_offset",
        "high_watermark",
        "leader",
        "leader_epoch",
        "log",
        "oracle",
        "partition",
        "seen",
    )

    def __init__(self, partition: Partition, oracle: PartitionOracle) -> None:
        self.partition = partition
        self.log = partition.log
        self.oracle = oracle
        self.seen: tuple[Any, ...] = ()
        self.leader: LeaderState | None = None
        self.leader_epoch = -1
        self.high_watermark = 0
        self.checked_offset = 0


class _Watched:
    """One life of one node."""

    def __init__(
        self, simulated: SimulatedNode, node: Node, verdict: Verdict, placement: PlacementOracle
    ) -> None:
        self.simulated = simulated
        self.node = node
        self.placement = placement
        self.led_epoch = -1
        self.high_watermark = -1
        self.replicas: dict[int, _Replica] = {}
        self.quorum = QuorumChecks(simulated, node, verdict)


class Invariants:
    """Checks each node by its own state, not by its answers to other nodes."""

    def __init__(self, cluster: SimulatedCluster, verdict: Verdict, history: History) -> None:
        self._history = history
        self.asked_moves: set[tuple[int, TopicPartition, str]] = set()
        """Moves between directories that were asked for: broker, partition and path."""
        self.late_reports: set[tuple[int, TopicPartition]] = set()
        """Replicas whose directory was reported late: broker and partition."""
        self.moves = MoveOracle(verdict)
        self.metadata = MetadataOracle(verdict)
        self.records = RecordOracle(verdict, lambda: cluster.loop.now_s)
        self._cluster = cluster
        self._verdict = verdict
        self._lives: dict[Life, _Watched] = {}
        self._partition_epochs: dict[tuple[Uuid, int], int] = {}
        self._tainted: dict[int, int] = {}
        """Brokers that lost power, with their broker epoch at that time."""
        self._dying: dict[int, int] = {}
        """Brokers that were killed, or are about to be, with their broker epoch at that time."""
        self._ends: dict[tuple[int, Uuid, int], int] = {}
        """Log ends of brokers that are down."""
        self.metadata.listeners.append(self._on_image)
        self.metadata.record_listeners += [
            ElectionOracle(self.metadata, self.records, verdict).committed,
            FeatureOracle(verdict).committed,
            DirectoryOracle(self.records, verdict).committed,
        ]

    # -- lives

    def watch(self, simulated: SimulatedNode) -> None:
        """Watch a new life of a node; call it before the first event of that life."""
        node, life = simulated.node, simulated.life
        assert node is not None
        assert life is not None
        placement = PlacementOracle(simulated, self.asked_moves, self._verdict)
        self._lives[life] = _Watched(simulated, node, self._verdict, placement)
        watcher = MetadataWatcher(simulated.host, self.metadata, self._verdict)
        node.publisher.add(watcher)
        watcher.listen(node.publisher)

    def ended(
        self, simulated: SimulatedNode, life: Life, node: Node, *, is_power_lost: bool
    ) -> None:
        """Note the end of a life."""
        self._lives.pop(life, None)
        broker_id = simulated.plan.node_id
        if node.broker is None:
            return
        for partition in node.broker.replicas:
            where = (broker_id, partition.topic_id, partition.topic_partition.partition)
            self._ends[where] = partition.log.log_end_offset
        if is_power_lost:
            self.expect_loss(simulated)

    def expect_crash(self, simulated: SimulatedNode) -> None:
        """Note that a broker is about to end without a controlled shutdown."""
        if simulated.config.is_broker:
            self._dying[simulated.plan.node_id] = self._broker_epoch(simulated.plan.node_id)

    def expect_loss(self, simulated: SimulatedNode) -> None:
        """Note that a broker is about to lose records; it has them again when it has registered
        again."""
        self._tainted[simulated.plan.node_id] = self._broker_epoch(simulated.plan.node_id)
        self.moves.forget(simulated)

    @property
    def is_whole(self) -> bool:
        """True if every broker that died is back, and every replica is in sync.

        Then one more death that loses unsynced records breaks no promise: with
        min.insync.replicas=2 the cluster survives one at a time (KIP-966). For the controller every
        death counts, whether records were lost or not.
        """
        return not self._dying and all(
            len(partition.isr) == len(partition.replicas)
            for topic in self.metadata.newest.topics.by_name.values()
            for partition in topic.partitions.values()
        )

    def _broker_epoch(self, broker_id: int) -> int:
        known = self.metadata.newest.cluster.brokers.get(broker_id)
        return -1 if known is None else known.epoch

    def has_repaired(self, simulated: SimulatedNode, path: str, lost_count: int) -> None:
        """Note that repairs that lose nothing were made, and how many batches they lost."""
        self._verdict.check(
            lost_count == 0,
            f"{simulated}: the repairs of {path} that `audit --apply` makes lost {lost_count} "
            "batches",
        )

    def has_given_up(self, simulated: SimulatedNode, path: str) -> None:
        """Note that a directory has hung for longer than the limit."""
        self._verdict.check(
            path in simulated.offline_directories,
            f"{simulated} still uses {path}, which has hung for longer than the limit",
        )

    # -- after an event

    def after_event(self, life: Life) -> None:
        watched = self._lives.get(life)
        if watched is not None:
            node = watched.node
            core = watched.simulated.quorum_core
            self._look_at_directories(watched)
            if core is not None:
                self._look_at_quorum(watched, core)
                watched.quorum.after_event(core)
            if node.broker is not None:
                self._look_at_replicas(watched)
                self.moves.check_targets(watched.simulated, node.broker)
        self._verdict.raise_if_violated()

    def _look_at_directories(self, watched: _Watched) -> None:
        simulated = watched.simulated
        for path, failure in simulated.offline_directories.items():
            self._verdict.check(
                path in simulated.machine.disks.broken,
                f"{simulated} has given up {path}, whose disk works: {failure}",
            )

    def _look_at_quorum(self, watched: _Watched, core: QuorumCore) -> None:
        if isinstance(core.role, Leader) and core.epoch != watched.led_epoch:
            watched.led_epoch = core.epoch
            self.metadata.leads(str(watched.simulated), core.epoch, core.log.end_offset)
        high_watermark = core.high_watermark
        if high_watermark is not None and high_watermark != watched.high_watermark:
            self._verdict.check(
                high_watermark > watched.high_watermark,
                f"{watched.simulated}: the quorum's high watermark fell from "
                f"{watched.high_watermark} to {high_watermark}",
            )
            watched.high_watermark = high_watermark

    def _look_at_replicas(self, watched: _Watched) -> None:
        assert watched.node.broker is not None
        replicas = watched.replicas
        for partition in watched.node.broker.replicas:
            replica = replicas.get(id(partition))
            if replica is None:
                replica = replicas[id(partition)] = self._first_look(partition)
                watched.placement.hosted(partition, watched.node.publisher.image)
            leader, log = partition.leader, partition.log
            if log is not replica.log:
                self._log_replaced(watched, replica)
            seen = (
                None if leader is None else leader.leader_epoch,
                _committed_offset(partition),
                log.log_end_offset,
                log.log_start_offset,
                None if leader is None else leader.pending,
            )
            if seen != replica.seen:
                replica.seen = seen
                self._look_at(watched, replica)

    def _first_look(self, partition: Partition) -> _Replica:
        where = partition.topic_partition
        oracle = self.records.of(partition.topic_id, where.topic, where.partition)
        self._verdict.check(
            partition.log.topic_id == partition.topic_id,
            f"the log of {oracle} belongs to topic id {uuid_text(partition.log.topic_id or b'')}",
        )
        return _Replica(partition, oracle)

    def _log_replaced(self, watched: _Watched, replica: _Replica) -> None:
        """Check all records of a replica again, because it has moved or is rebuilt."""
        partition = replica.partition
        if _parent(partition.log) == _parent(replica.log):
            self._check_rebuild(watched, replica)
        else:
            self._verdict.check(
                partition.log.log_end_offset >= replica.log.log_end_offset,
                f"{watched.simulated} moved {replica.oracle} with a log up to "
                f"{partition.log.log_end_offset} instead of {replica.log.log_end_offset}",
            )
        replica.log = partition.log
        replica.seen = ()
        replica.checked_offset = 0
        name = str(partition.topic_partition)
        disks = watched.simulated.machine.disks
        with disks.observed():
            current = [d for d in disks.directories if disks.exists(f"{d}/{name}")]
        self._verdict.check(
            len(current) == 1 or bool(disks.broken),
            f"{watched.simulated} has current logs of {name} in {current} after a move",
        )

    def _check_rebuild(self, watched: _Watched, replica: _Replica) -> None:
        """Check that nobody counts on a replica, or could elect it, whose log is replaced."""
        partition, broker_id = replica.partition, watched.simulated.plan.node_id
        index = partition.topic_partition.partition
        known = self.metadata.newest.topics.partition(partition.topic_id, index)
        if known is None or broker_id not in known.replicas:
            return
        # A late report records the directory again until the broker has received it.
        is_online = (
            broker_id,
            partition.topic_partition,
        ) not in self.late_reports and self.metadata.newest.cluster.has_online_directory(
            broker_id, known.directory(broker_id)
        )
        self._verdict.check(
            broker_id not in (known.leader, *known.isr, *known.elr, *known.last_known_elr)
            and not is_online,
            f"{watched.simulated} rebuilds {replica.oracle}, which may be elected: {known}",
        )

    def _look_at(self, watched: _Watched, replica: _Replica) -> None:
        partition, oracle = replica.partition, replica.oracle
        leader = partition.leader
        broker_id = watched.simulated.plan.node_id
        high_watermark = _committed_offset(partition)
        who = f"broker {broker_id}"
        if partition.is_offline:
            return
        assert watched.node.broker is not None
        self._verdict.check(
            leader is None or not watched.node.broker.replicas.rebuilds.must_stay_lost(partition),
            f"{who} leads {oracle}, which it rebuilds",
        )
        if replica.leader is not None and replica.leader is not leader:
            # The former leader committed these in the event that ended its leadership.
            replica.high_watermark = replica.leader.high_watermark
            self._compare(watched, replica, replica.leader)
        replica.leader = leader
        if leader is None:
            replica.leader_epoch = -1
            if high_watermark < replica.checked_offset:
                replica.checked_offset = high_watermark
        else:
            if leader.leader_epoch != replica.leader_epoch:
                replica.leader_epoch = leader.leader_epoch
                self.records.leads(
                    oracle,
                    broker_id,
                    leader.leader_epoch,
                    partition.log.log_end_offset,
                    lambda: _content(watched, partition),
                )
                # Records of another lineage may now be committed in this one.
                fork_offset = oracle.at(leader.leader_epoch).fork_offset
                replica.checked_offset = min(replica.checked_offset, fork_offset)
            else:
                self._verdict.check(
                    high_watermark >= replica.high_watermark,
                    f"{who} leads {oracle}: its high watermark fell from {replica.high_watermark} "
                    f"to {high_watermark}",
                )
            oracle.start_offset = max(oracle.start_offset, partition.log.log_start_offset)
            self._verdict.check(
                partition.log.log_start_offset <= high_watermark,
                f"{who} leads {oracle} with log start {partition.log.log_start_offset} above its "
                f"high watermark {high_watermark}",
            )
            self._verdict.check(
                high_watermark <= partition.log.log_end_offset,
                f"{who} leads {oracle} with high watermark {high_watermark} above its log end "
                f"{partition.log.log_end_offset}",
            )
        replica.high_watermark = high_watermark
        self._compare(watched, replica, leader)
        if leader is not None and leader.pending is not None:
            self._check_proposal(who, oracle, leader.pending, leader.leader_epoch)

    def _compare(self, watched: _Watched, replica: _Replica, leader: LeaderState | None) -> None:
        """Compare the records that the high watermark has newly passed with the committed ones."""
        partition, oracle = replica.partition, replica.oracle
        log = partition.log
        # A follower may lack deleted records before it knows the leader's log start.
        start = max(replica.checked_offset, log.log_start_offset, oracle.start_offset)
        end = min(replica.high_watermark, log.log_end_offset)
        if log.unverified_gaps:
            end = min(end, log.unverified_gaps[0].first_offset)
        committed_before = oracle.end_offset
        disks = watched.simulated.machine.disks
        with disks.observed(), up_to_date(log):
            while start < end:
                data = bytes(log.read(start, _READ_BYTES, end).records)
                next_offset = self.records.seen(
                    f"broker {watched.simulated.plan.node_id}",
                    oracle,
                    start,
                    data,
                    leader_epoch=-1 if leader is None else leader.leader_epoch,
                    is_leader=leader is not None,
                )
                if next_offset <= start:
                    break
                start = next_offset
        replica.checked_offset = max(replica.checked_offset, start)
        if oracle.end_offset > committed_before:
            self._check_isr(oracle, self.metadata.newest)

    # -- the ISR

    def _on_image(self, image: MetadataImage) -> None:
        for deaths in (self._tainted, self._dying):
            for broker_id, epoch in list(deaths.items()):
                if self._broker_epoch(broker_id) > epoch:
                    del deaths[broker_id]
        for topic_id, topic in image.topics.by_id.items():
            for index, partition in topic.partitions.items():
                if self._partition_epochs.get((topic_id, index)) != partition.partition_epoch:
                    self._partition_epochs[topic_id, index] = partition.partition_epoch
                    self._history.note(story_of(f"{topic.name}-{index}", partition))
                    self._verdict.check(
                        partition.leader < 0 or partition.leader in partition.isr,
                        f"the leader is not in the ISR: "
                        f"{story_of(f'{topic.name}-{index}', partition)}",
                    )
                    oracle = self.records.find(topic_id, index)
                    if oracle is not None:
                        self._check_isr(oracle, image)

    def compare_all(self) -> None:
        """Compare all records of every replica with the committed ones, at the end."""
        for watched in self._lives.values():
            watched.quorum.check_versions()
            for replica in watched.replicas.values():
                partition, oracle = replica.partition, replica.oracle
                if partition.is_offline or partition.is_deleted:
                    continue
                self._check_transaction_index(watched, partition)
                has_gaps = oracle.is_compacted or partition.log.log_start_offset > 0
                if not oracle.has_lost or has_gaps:
                    continue
                end = common_offset(oracle.lineages[-1], _content(watched, partition))
                self._verdict.check(
                    end == oracle.end_offset,
                    f"{watched.simulated} has of {oracle} what was committed up to {end} only, not "
                    f"up to {oracle.end_offset}",
                )

    def _check_transaction_index(self, watched: _Watched, partition: Partition) -> None:
        content = list(_content(watched, partition))
        with watched.simulated.machine.disks.observed():
            for wrong in wrong_answers(partition.log, content):
                self._verdict.violated(f"{watched.simulated}: {partition.log}: {wrong}")

    def _check_isr(self, oracle: PartitionOracle, image: MetadataImage) -> None:
        registration = image.topics.partition(oracle.topic_id, oracle.index)
        if registration is None:
            return
        epoch = registration.leader_epoch
        if any(unclean <= epoch for unclean in oracle.unclean_epochs):
            return  # the committed records are known when the leader leads
        committed = oracle.at(epoch).end_offset
        for broker_id in registration.isr:
            end = self._log_end(broker_id, oracle)
            if end is not None and broker_id not in self._tainted:
                self._verdict.check(
                    end >= committed,
                    f"broker {broker_id} is in the ISR {registration.isr} of {oracle} with a log "
                    "up "
                    f"to {end}, but everything below {committed} is committed",
                )

    def _check_proposal(
        self, who: str, oracle: PartitionOracle, proposal: IsrProposal, leader_epoch: int
    ) -> None:
        """Check that all members of a proposed ISR have every committed record."""
        registration = self.metadata.newest.topics.partition(oracle.topic_id, oracle.index)
        if registration is None or registration.partition_epoch != proposal.partition_epoch:
            return  # the controller refuses it
        committed = oracle.at(leader_epoch).end_offset
        for broker_id in proposal.isr:
            end = self._log_end(broker_id, oracle)
            if end is None or broker_id in self._tainted or broker_id in registration.isr:
                continue
            self._verdict.check(
                end >= committed,
                f"{who} proposes the ISR {proposal.isr} of {oracle}, but the log of broker "
                f"{broker_id} ends at {end}, and everything below {committed} is committed",
            )

    def _log_end(self, broker_id: int, oracle: PartitionOracle) -> int | None:
        """Return the log end of a replica, even if its broker is down; None if it is unknown."""
        node = self._cluster.nodes[broker_id].node
        if node is not None and node.broker is not None:
            partition = node.broker.replicas.lookup(oracle.topic, oracle.index)
            if partition is not None and partition.topic_id == oracle.topic_id:
                return partition.log.log_end_offset
        return self._ends.get((broker_id, oracle.topic_id, oracle.index))


def _committed_offset(partition: Partition) -> int:
    """Return the high watermark; the log of an only replica has it before its leader state."""
    leader, log = partition.leader, partition.log
    if leader is None or not leader.is_sole_replica:
        return partition.high_watermark
    return max(leader.high_watermark, log.high_watermark)


def _content(watched: _Watched, partition: Partition) -> Iterator[bytes]:
    """Yield all whole batches of a log, in order."""
    log = partition.log
    offset, end = log.log_start_offset, log.log_end_offset
    with watched.simulated.machine.disks.observed(), up_to_date(log):
        while offset < end:
            data = bytes(log.read(offset, _READ_BYTES, end).records)
            yield data
            offset = max((header.next_offset for _, header in batches(data)), default=end)


def story_of(name: str, partition: PartitionRegistration) -> str:
    """Return a partition's state as text for the history."""
    parts = [
        f"{name}: leader {partition.leader} in epoch {partition.leader_epoch}",
        f"replicas {list(partition.replicas)}",
        f"ISR {list(partition.isr)}",
    ]
    if partition.elr or partition.last_known_elr:
        parts.append(f"ELR {list(partition.elr)}, last known {list(partition.last_known_elr)}")
    if partition.is_reassigning:
        adding, removing = partition.adding_replicas, partition.removing_replicas
        parts.append(f"adding {list(adding)}, removing {list(removing)}")
    return ", ".join(parts)


def _parent(log: Log) -> str:
    return log.path.rpartition("/")[0]
