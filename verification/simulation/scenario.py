"""The scenario of a seed: the shape of the cluster, its settings, and the faults.

Each run has its own mixture of faults: with all of them at once, one fault hides another.
"""

from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

from spindle.config.broker_keys.spindle import NATIVE_LANE_ENABLE
from spindle.metadata.features import TRANSACTION_VERSION

_LANES: Final = 0.25
"""Probability that brokers have native lanes."""
_SETTINGS: Final = {
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
    "controller.quorum.election.timeout.ms": "1000",
    "controller.quorum.fetch.timeout.ms": "2000",
    "controller.quorum.request.timeout.ms": "2000",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "3",
    "replica.lag.time.max.ms": "2000",
    "replica.socket.timeout.ms": "3000",
    "controller.socket.timeout.ms": "4000",
    "replica.fetch.wait.max.ms": "300",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.session.timeout.ms": "3000",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "log.initial.task.delay.ms": "1000",
    "log.cleaner.backoff.ms": "300",
    "log.retention.check.interval.ms": "700",
    "log.flush.offset.checkpoint.interval.ms": "2000",
    "leader.imbalance.check.interval.seconds": "5",
    "unclean.leader.election.interval.ms": "2000",
    "log.segment.delete.delay.ms": "500",
    "spindle.log.dir.hang.timeout.ms": "3000",
}

_SHARE_SETTINGS: Final = {
    "share.coordinator.state.topic.num.partitions": "2",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
    "share.coordinator.snapshot.update.records.per.snapshot": "20",
    "group.share.session.timeout.ms": "3000",
    "group.share.min.session.timeout.ms": "3000",
    "group.share.heartbeat.interval.ms": "500",
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": "2000",
}


@dataclass(frozen=True, slots=True)
class NodePlan:
    """One node. `clock_rate` and `clock_offset_ms` say how wrong its clock is."""

    node_id: int
    roles: tuple[str, ...]
    directories: int = 1
    metadata_directory: str | None = None
    clock_rate: float = 1.0
    clock_offset_ms: int = 0

    @property
    def is_clock_right(self) -> bool:
        return self.clock_rate == 1.0 and self.clock_offset_ms == 0

    @property
    def text(self) -> str:
        clock = f" (clock {self.clock_offset_ms:+d} ms, rate {self.clock_rate:.3f})"
        return f"{self.node_id}: {'+'.join(self.roles)}{'' if self.is_clock_right else clock}"


@dataclass(frozen=True, slots=True)
class FaultRates:
    """Probabilities per disturbance period, if not stated otherwise.

    Attributes:
        kill: a process dies and keeps its writes.
        cut_power: a host loses power and keeps what was synced.
        stop: a node is restarted in order.
        cut: some ways between hosts are cut, often in one direction only.
        fail_disk: a disk fails until its node is restarted.
        slow: a disk is slow for a while.
        hang: a disk hangs for a while.
        replace: a disk is lost and replaced by an empty one.
        fail: a log directory fails; later its node is restarted, perhaps while it still fails, and
            then with the directory as it was or, in a run that may lose records, an empty one.
        fill: a directory runs full, in the middle of a write; later it has space, at a restart.
        readonly: a directory cannot be written any more until a restart.
        stale: a log directory fails or its process is killed, and it returns with old content.
        recovered: a log directory fails and is brought online while its node runs, empty or not.
        added: a running node gets one more directory, which it may have to remove later.
        cut_swap: a process is killed in the swap of a move, and its next start may miss the source
            or the target.
        moves_amid_changes: replicas move to a directory that is added and removed meanwhile.
        rebuilt: a follower is rebuilt from its leader; its process may be killed, its directory
            fail, or the rebuild be cancelled meanwhile.
        audited: files of a directory are damaged while its node is down, and `audit --apply` runs.
        vanish: a broker starts without the folders of some replicas, maybe without the checkpoints
            that name them, or with an empty folder in place of a disk; later they are back.
        shuffled: log.dirs has another order after a restart, or its disks are swapped.
        checkpoints: a broker is killed, and the checkpoints of recovery points and compaction that
            its next start finds are older, missing or torn.
        outage: all brokers are killed at once, some of them with such checkpoints.
        clock: a clock is set.
        loss: per segment: it is lost.
        breaking: per segment: its connection breaks.
        silence: per segment: its connection carries nothing any more, without an error.
        hold_metadata: per delivery of committed metadata to a node: it is held back for a while,
            and delivered together with metadata that is committed meanwhile.
    """

    kill: float = 0.0
    cut_power: float = 0.0
    stop: float = 0.0
    cut: float = 0.0
    fail_disk: float = 0.0
    slow: float = 0.0
    hang: float = 0.0
    replace: float = 0.0
    fail: float = 0.0
    fill: float = 0.0
    readonly: float = 0.0
    stale: float = 0.0
    recovered: float = 0.0
    added: float = 0.0
    shuffled: float = 0.0
    cut_swap: float = 0.0
    moves_amid_changes: float = 0.0
    rebuilt: float = 0.0
    checkpoints: float = 0.0
    outage: float = 0.0
    audited: float = 0.0
    vanish: float = 0.0
    clock: float = 0.0
    loss: float = 0.0
    breaking: float = 0.0
    silence: float = 0.0
    hold_metadata: float = 0.0

    @property
    def is_lossy(self) -> bool:
        """True if a broker may lose acknowledged records, though never two brokers at a time.

        Then the cluster keeps its promises only with the ELR (KIP-966).
        """
        return bool(self.cut_power or self.replace or self.stale or self.recovered)


@dataclass(frozen=True, slots=True)
class Workload:
    """Work of the admin, besides creating and deleting topics, elections and reassignments.

    Attributes:
        voters: removes voters of the quorum and adds them again.
        joins_by_itself: `controller.quorum.auto.join.enable`.
        features: raises and lowers feature levels.
        configs: changes dynamic configurations of brokers and topics.
        returns: removes a replica of a partition and adds the same one again.
        consumers: a group of the consumer protocol (KIP-848).
        rolls: a group whose members change between the classic and the consumer protocol.
        transactions: transactional producers and copiers that are to be exact.
        transaction_versions: raises and lowers `transaction.version`.
        directories: moves replicas between the directories of their brokers.
        cordons: sets and removes cordons.
        isolated_failure: at the end, one directory fails while nothing else goes wrong.
        unclean: enables unclean elections; without power failures and lost disks, which may lose
            acknowledged records without any election.
        members: a classic group with members that join and leave.
        compacts: some topics are compacted, at short intervals.
        trims: some topics lose old records, by retention and DeleteRecords.
        small_segments: compacted topics, the internal ones too, have segments of a few batches, so
            that compaction leaves gaps between segments.
        shares: a share group with workers that release, reject and forget records.
    """

    voters: bool = False
    joins_by_itself: bool = False
    features: bool = False
    configs: bool = False
    directories: bool = False
    cordons: bool = False
    isolated_failure: bool = False
    unclean: bool = False
    members: bool = False
    compacts: bool = False
    trims: bool = False
    small_segments: bool = False
    returns: bool = False
    consumers: bool = False
    rolls: bool = False
    transactions: bool = False
    transaction_versions: bool = False
    shares: bool = False


@dataclass(frozen=True, slots=True)
class Scenario:
    """A run.

    Attributes:
        is_dynamic: True for voters in the log, False for `controller.quorum.voters`.
        release: the release whose feature levels the cluster has at first; None for the newest.
        features: other levels at first, as `name=level`; none beside a release.
        properties: further keys of every node.
        disk_s: the longest usual time of a disk job.
        fault_s: the time with faults.
        whole_s, drain_s: timeouts for recovery, then for clients to finish. A node waits at most 4
            s for one answer, by the settings.
    """

    seed: int
    nodes: tuple[NodePlan, ...]
    is_dynamic: bool
    chances: FaultRates
    properties: dict[str, str] = field(default_factory=dict)
    disk_s: float = 0.002
    fault_s: float = 8.0
    deeds: Workload = Workload()
    release: str | None = None
    features: tuple[str, ...] = ()
    recovery_s: float = 20.0
    drain_s: float = 60.0

    @property
    def has_lanes(self) -> bool:
        """True if brokers have native lanes."""
        return self.properties.get(NATIVE_LANE_ENABLE) == "true"

    @property
    def are_clocks_right(self) -> bool:
        """True if all clocks show the true time, and none is set."""
        return not self.chances.clock and all(plan.is_clock_right for plan in self.nodes)

    @property
    def text(self) -> str:
        nodes = ", ".join(plan.text for plan in self.nodes)
        rough = ", ".join(
            f"{name} {getattr(self.chances, name):.3f}"
            for name in FaultRates.__slots__
            if getattr(self.chances, name)
        )
        deeds = ", ".join(name for name in Workload.__slots__ if getattr(self.deeds, name))
        levels = "".join(f"; {feature}" for feature in self.features)
        lanes = "; lanes" if self.has_lanes else ""
        faults = rough or "nothing goes wrong"
        return f"seed {self.seed}: {nodes}; {faults}; {deeds}{levels}{lanes}"


def draw(seed: int) -> Scenario:
    """Return the scenario of a seed."""
    random = Random(seed)
    nodes = _draw_nodes(random)
    is_dynamic = random.random() < 0.6
    deeds = replace(
        _draw_deeds(random, is_dynamic=is_dynamic),
        # Separate random stream, so that old seeds stay reproducible.
        members=Random(f"{seed}: members").random() < 0.5,
    )
    chances = _draw_chances(random)
    # From an own generator, so that a later addition does not change the meaning of a seed.
    housekeeping = Random(f"housekeeping {seed}")
    if not deeds.unclean:
        deeds = replace(
            deeds,
            compacts=housekeeping.random() < 0.4,
            trims=housekeeping.random() < 0.3,
        )
    if deeds.unclean:
        chances = replace(chances, cut_power=0.0, replace=0.0, kill=random.uniform(0.1, 0.5))
    properties = _draw_properties(seed, random)
    disk_s = random.choice((0.001, 0.003, 0.02))
    fault_s = random.choice((2.0, 4.0, 8.0)) * (2 if deeds.unclean else 1)
    # From an own generator, so that the other numbers of a seed keep their meaning.
    more = Random(f"more of {seed}")
    if more.random() < 0.4:
        chances = replace(chances, hold_metadata=more.uniform(0.05, 0.6))
    if not deeds.unclean and more.random() < 0.25:
        deeds = replace(deeds, returns=True)
        chances = _calmer(chances, more)
        fault_s = 8.0
    # From another source: a seed keeps everything else that it has always drawn.
    moves_random = Random(f"moves {seed}")
    if moves_random.random() < 0.4:
        deeds = replace(deeds, directories=True)
        nodes = tuple(replace(plan, directories=max(plan.directories, 2)) for plan in nodes)
        rate = moves_random.choice(("300", "3000", "1000000"))
        properties["replica.alter.log.dirs.io.max.bytes.per.second"] = rate
    release = None if is_dynamic or chances.is_lossy or random.random() < 0.7 else "3.7"
    if release is None:
        deeds = replace(
            deeds,
            consumers=Random(f"consumers {seed}").random() < 0.3,
            rolls=Random(f"rolls {seed}").random() < 0.2,
        )
        # A group is converted back and forth only after some rounds of its members.
        fault_s += 16.0 * deeds.rolls
    deeds, features = _draw_transactions(seed, deeds, release)
    return Scenario(
        seed,
        nodes,
        is_dynamic,
        chances,
        properties,
        disk_s=disk_s,
        fault_s=fault_s,
        deeds=deeds,
        release=release,
        features=features,
    )


def draw_disks(seed: int) -> Scenario:
    """Return the scenario of a seed in which directories fail, and little else goes wrong."""
    random = Random(f"disks {seed}")

    def sometimes(probability: float, value: float) -> float:
        return value * random.random() if random.random() < probability else 0.0

    base = draw(seed)
    chances = FaultRates(
        kill=sometimes(0.3, 0.2),
        cut_power=sometimes(0.15, 0.2),
        stop=sometimes(0.2, 0.2),
        cut=sometimes(0.2, 0.2),
        slow=sometimes(0.2, 0.2),
        hang=sometimes(0.15, 0.2),
        fail=sometimes(0.5, 0.3),
        fill=sometimes(0.4, 0.3),
        readonly=sometimes(0.3, 0.3),
        stale=sometimes(0.2, 0.3),
        shuffled=sometimes(0.2, 0.3),
        hold_metadata=sometimes(0.2, 0.5),
        recovered=sometimes(0.4, 0.3),
        added=sometimes(0.3, 0.3),
        audited=0.3 if Random(f"audited {seed}").random() < 0.15 else 0.0,
    )
    chances = _with_rarer_faults(seed, chances)
    deeds = Workload(
        directories=random.random() < 0.4,
        cordons=random.random() < 0.5,
        isolated_failure=random.random() < 0.6,
        members=random.random() < 0.2,
        compacts=random.random() < 0.2,
        trims=random.random() < 0.2,
        returns=random.random() < 0.1,
        consumers=Random(f"consumers {seed}").random() < 0.2,
        rolls=base.deeds.rolls,
        transactions=base.deeds.transactions,
        transaction_versions=base.deeds.transaction_versions,
    )
    nodes = tuple(
        replace(plan, directories=random.choice((2, 3, 3, 4))) if "broker" in plan.roles else plan
        for plan in base.nodes
    )
    rate = random.choice(("300", "3000", "1000000"))
    return replace(
        base,
        nodes=nodes,
        chances=chances,
        deeds=deeds,
        properties={**base.properties, "replica.alter.log.dirs.io.max.bytes.per.second": rate},
        fault_s=random.choice((4.0, 8.0)),
        release=None,
    )


def _with_rarer_faults(seed: int, chances: FaultRates) -> FaultRates:
    """Add faults of directories, each from an own generator: a seed keeps its other faults."""
    moving = Random(f"moves amid disks {seed}")
    if moving.random() < 0.4:
        chances = replace(
            chances, cut_swap=0.3 * moving.random(), moves_amid_changes=0.5 * moving.random()
        )
    rebuilding = Random(f"rebuilt {seed}")
    if rebuilding.random() < 0.3:
        chances = replace(chances, rebuilt=0.5 * rebuilding.random())
    vanishing = Random(f"vanish {seed}")
    if vanishing.random() < 0.25:
        chances = replace(chances, vanish=0.1 + 0.3 * vanishing.random())
    return chances


def draw_lanes(seed: int) -> Scenario:
    """Return the scenario of a seed in which lanes serve clients, and nobody loses records."""
    random = Random(f"lanes alone {seed}")

    def sometimes(probability: float, value: float) -> float:
        return value * random.random() if random.random() < probability else 0.0

    base = draw_disks(seed)
    chances = FaultRates(
        kill=sometimes(0.4, 0.3),
        stop=sometimes(0.4, 0.3),
        cut=sometimes(0.2, 0.2),
        slow=sometimes(0.3, 0.3),
        hang=sometimes(0.5, 0.3),
        fail=sometimes(0.4, 0.3),
        fill=sometimes(0.4, 0.3),
        breaking=sometimes(0.3, 0.005),
        hold_metadata=sometimes(0.3, 0.5),
    )
    deeds = Workload(
        configs=random.random() < 0.3,
        directories=random.random() < 0.4,
        members=random.random() < 0.2,
        compacts=random.random() < 0.2,
        trims=random.random() < 0.3,
        returns=random.random() < 0.2,
        transactions=random.random() < 0.2,
    )
    properties = {**base.properties, NATIVE_LANE_ENABLE: "true"}
    return replace(base, chances=chances, deeds=deeds, properties=properties, fault_s=8.0)


def draw_vanishing(seed: int) -> Scenario:
    """Return the scenario of a seed in which folders of replicas vanish, and nothing else."""
    return replace(draw_disks(seed), chances=FaultRates(vanish=0.3), deeds=Workload(), fault_s=8.0)


def draw_rebuilding(seed: int) -> Scenario:
    """Return the scenario of a seed in which replicas are rebuilt, and brokers are killed."""
    return replace(
        draw_disks(seed),
        chances=FaultRates(rebuilt=1.0, kill=0.3),
        deeds=Workload(unclean=True),
        fault_s=8.0,
    )


def draw_cleaning(seed: int) -> Scenario:
    """Return the scenario of a seed in which brokers die while compaction works."""
    random = Random(f"cleaning {seed}")

    def sometimes(probability: float, value: float) -> float:
        return value * random.random() if random.random() < probability else 0.0

    base = draw(seed)
    has_power_failures = random.random() < 0.3
    chances = FaultRates(
        kill=sometimes(0.5, 0.3),
        cut_power=random.uniform(0.1, 0.4) if has_power_failures else 0.0,
        stop=sometimes(0.2, 0.2),
        cut=sometimes(0.2, 0.2),
        slow=sometimes(0.3, 0.3),
        hold_metadata=sometimes(0.3, 0.5),
        checkpoints=random.uniform(0.1, 0.4),
        outage=0.0 if has_power_failures else random.uniform(0.1, 0.3),
    )
    deeds = replace(
        base.deeds,
        unclean=False,
        compacts=True,
        small_segments=True,
        trims=random.random() < 0.2,
        directories=random.random() < 0.3,
    )
    nodes = tuple(
        replace(plan, directories=2) if deeds.directories and "broker" in plan.roles else plan
        for plan in base.nodes
    )
    properties = {
        **base.properties,
        "log.cleaner.min.cleanable.ratio": "0.01",
        "log.flush.offset.checkpoint.interval.ms": random.choice(("1000", "60000")),
        "replica.alter.log.dirs.io.max.bytes.per.second": "3000",
    }
    return replace(
        base,
        nodes=nodes,
        chances=chances,
        deeds=deeds,
        properties=properties,
        fault_s=random.choice((4.0, 8.0)),
        # Before eligible leader replicas, the only member of an ISR leads without what it lost.
        release=None if chances.is_lossy else base.release,
    )


def draw_shares(seed: int) -> Scenario:
    """Return the scenario of a seed with workers of a share group, among any faults."""
    random = Random(f"shares {seed}")
    base = draw_disks(seed) if random.random() < 0.4 else draw(seed)
    return replace(
        base,
        deeds=replace(
            base.deeds,
            shares=True,
            compacts=base.deeds.compacts and random.random() < 0.5,
            trims=base.deeds.trims and random.random() < 0.5,
            transactions=False,
            transaction_versions=False,
            rolls=False,
            # Level 28 of metadata.version is the first one with share groups.
            features=False,
        ),
        properties={**base.properties, **_SHARE_SETTINGS},
        fault_s=random.choice((4.0, 8.0)),
        release=None,
        features=(),
    )


def _draw_transactions(
    seed: int, deeds: Workload, release: str | None
) -> tuple[Workload, tuple[str, ...]]:
    """Return deeds with or without transactions, and feature levels at first."""
    if Random(f"transactions {seed}").random() >= 0.35:
        return deeds, ()
    random = Random(f"transaction.version {seed}")
    deeds = replace(deeds, transactions=True, transaction_versions=random.random() < 0.3)
    if release is not None or random.random() >= 0.5:
        return deeds, ()
    return deeds, (f"{TRANSACTION_VERSION}={random.randint(0, 1)}",)


def _calmer(chances: FaultRates, random: Random) -> FaultRates:
    """Return chances with which replicas can be reassigned, and brokers get metadata late."""
    return FaultRates(
        kill=chances.kill * random.choice((0.0, 0.3)),
        slow=chances.slow,
        cut=chances.cut * random.choice((0.0, 0.3)),
        hold_metadata=random.uniform(0.1, 0.6),
    )


def _draw_deeds(random: Random, *, is_dynamic: bool) -> Workload:
    return Workload(
        voters=is_dynamic and random.random() < 0.5,
        joins_by_itself=is_dynamic and random.random() < 0.3,
        features=random.random() < 0.3,
        configs=random.random() < 0.3,
        unclean=random.random() < 0.15,
    )


def _draw_properties(seed: int, random: Random) -> dict[str, str]:
    properties = dict(_SETTINGS)
    if Random(f"lanes {seed}").random() < _LANES:
        properties[NATIVE_LANE_ENABLE] = "true"
    checkpoint_ms = random.choice((500, 3000))
    properties["replica.high.watermark.checkpoint.interval.ms"] = str(checkpoint_ms)
    if random.random() < 0.4:
        properties["metadata.log.max.record.bytes.between.snapshots"] = "2000"
        properties["metadata.max.retention.bytes"] = "3000"
    return properties


def _draw_nodes(random: Random) -> tuple[NodePlan, ...]:
    both, broker, controller = ("broker", "controller"), ("broker",), ("controller",)
    layout = random.choice(
        (
            [both] * 3,
            [both] * 3,
            [controller] * 3 + [broker] * 3,
            [controller] + [broker] * 3,
            [both, both, controller, broker],
        )
    )
    is_skewed = random.random() < 0.3
    return tuple(
        NodePlan(
            node_id,
            roles,
            directories=random.choice((1, 1, 2)) if "broker" in roles else 1,
            metadata_directory="/metadata" if random.random() < 0.3 else None,
            clock_rate=random.uniform(0.97, 1.03) if is_skewed else 1.0,
            clock_offset_ms=random.randint(-60_000, 60_000) if is_skewed else 0,
        )
        for node_id, roles in enumerate(layout, start=1)
    )


def _draw_chances(random: Random) -> FaultRates:
    def sometimes(probability: float, value: float) -> float:
        return value * random.random() if random.random() < probability else 0.0

    return FaultRates(
        kill=sometimes(0.5, 0.3),
        cut_power=sometimes(0.3, 0.3),
        stop=sometimes(0.3, 0.3),
        cut=sometimes(0.5, 0.5),
        fail_disk=sometimes(0.2, 0.1),
        slow=sometimes(0.3, 0.3),
        clock=sometimes(0.2, 0.3),
        loss=sometimes(0.5, 0.05),
        breaking=sometimes(0.3, 0.005),
        hang=sometimes(0.2, 0.2),
        silence=sometimes(0.3, 0.003),
        replace=sometimes(0.2, 0.2),
    )
