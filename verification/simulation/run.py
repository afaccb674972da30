"""One simulation, from its seed to its result.

First the cluster starts. Then faults happen while clients work. Then all faults are healed: within
a limited time the cluster must recover, and all clients must finish.
"""

import asyncio
import gc
import logging
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from random import Random
from traceback import format_exception
from types import CoroutineType, FrameType
from typing import Any, Final

from spindle.metadata.features import DIRECTORY_ASSIGNMENT_LEVEL
from spindle.metadata.partitions import PartitionRegistration
from spindle.raft.roles import Leader
from spindle.runtime.broker.broker_server import BrokerServer
from verification.simulation.cluster import SimulatedCluster, SimulatedNode
from verification.simulation.invariants import Invariants, story_of
from verification.simulation.isolated_failure import IsolatedFailure
from verification.simulation.loop import Deadlock, SimulatedLoop, TimeLimitReached
from verification.simulation.move_oracle import unfinished_move
from verification.simulation.nemesis import Nemesis
from verification.simulation.network import Network, NetworkChances
from verification.simulation.scenario import Scenario
from verification.simulation.settings import unapplied_settings
from verification.simulation.trace import History
from verification.simulation.traffic import SimulatedTraffic
from verification.simulation.verdict import InvariantViolated, Verdict

_SETTLE_CHECK_S: Final = 0.25
_MAX_COLLECTIONS: Final = 10
_UNLIMITED: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class SimulationOutcome:
    """The result of a run.

    Attributes:
        violation: the broken invariant; None if all hold.
        events: number of callbacks that were run.
        acknowledged: records that were acknowledged to producers.
        metadata_offsets: end offset of the committed metadata log.
    """

    scenario: Scenario
    violation: str | None
    events: int
    simulated_s: float
    acknowledged: int
    metadata_offsets: int
    history: list[str]

    @property
    def report(self) -> str:
        """The text from which a person can investigate the run."""
        again = f"python -m verification.simulation --seed {self.scenario.seed}"
        return "\n".join((*self.history[-60:], self.scenario.text, str(self.violation), again))


class Simulation:
    """A cluster, its network and disks, and its clients."""

    def __init__(self, scenario: Scenario) -> None:
        random = Random(scenario.seed)
        self.scenario = scenario
        self.verdict = Verdict()
        self.loop = SimulatedLoop()
        started_s = self.loop.now_s
        self.history = History(lambda: self.loop.now_s - started_s)
        chances = scenario.chances
        self.network = Network(
            self.loop,
            Random(random.randbytes(8)),
            NetworkChances(loss=chances.loss, breaking=chances.breaking, silence=chances.silence),
        )
        self.loop.network = self.network
        self.network.has_descriptors = scenario.has_lanes
        thread_random = Random(random.randbytes(8))
        self.loop.thread_delay_s = lambda: thread_random.uniform(0.0, 0.005)
        self.cluster = SimulatedCluster(
            scenario, self.loop, self.history, Random(random.randbytes(8))
        )
        self.invariants = Invariants(self.cluster, self.verdict, self.history)
        self.loop.after_event = self.invariants.after_event
        self.loop.set_exception_handler(self._on_lost_exception)
        for node in self.cluster.nodes.values():
            node.observer = self.invariants
        self.traffic = SimulatedTraffic(
            self.cluster,
            self.invariants,
            self.verdict,
            self.history,
            self.loop,
            Random(random.randbytes(8)),
        )
        self.nemesis = Nemesis(
            self.cluster,
            self.network,
            self.invariants,
            self.history,
            self.traffic.voters,
            self.loop,
            Random(random.randbytes(8)),
        )
        self._random = random

    def run(self) -> SimulationOutcome:
        """Run the scenario to its end.

        Raises:
            TimeLimitReached: an alarm of the test runner has interrupted the run.
        """
        started_s = self.loop.now_s
        violation: str | None = None
        with _logging_to(self.history), _alarms_interrupting(self.loop):
            asyncio.set_event_loop(None)
            try:
                self.loop.run_until_complete(self._run())
            except (InvariantViolated, Deadlock) as violated:
                violation = str(violated)
            except TimeLimitReached:
                raise
            except Exception as error:  # noqa: BLE001 - it is the result of this seed
                # The other seeds of a batch still run.
                violation = "the simulation failed:\n" + "".join(format_exception(error))
            finally:
                self.loop.end()
        return SimulationOutcome(
            self.scenario,
            violation,
            self.loop.event_count,
            self.loop.now_s - started_s,
            self.traffic.acknowledged,
            self.invariants.metadata.end_offset,
            self.history.lines(),
        )

    def _on_lost_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Report a task or callback whose exception was not handled."""
        error = context.get("exception")
        self.verdict.violated(f"{context['message']}: {error!r}")

    async def _run(self) -> None:
        for node in self.cluster.nodes.values():
            self.loop.call_later(self._random.uniform(0.0, 0.3), node.start)
        self.traffic.start()
        await asyncio.sleep(1.0)
        await self.nemesis.run(self.scenario.fault_s)
        await self.nemesis.heal()
        operator = asyncio.ensure_future(self.traffic.accept_losses())
        if self.scenario.deeds.isolated_failure:
            await self._fail_quietly()
        self.traffic.finish()
        await self._settle()
        operator.cancel()
        self.invariants.compare_all()
        await self.traffic.audit()
        self.verdict.raise_if_violated()
        await self.traffic.stop()

    async def _fail_quietly(self) -> None:
        self.traffic.end_administration()
        limit_s = self.scenario.recovery_s + self.scenario.drain_s
        await self._wait_until(
            lambda: self.traffic.unfinished_administration or self._unrecovered(), limit_s
        )
        mended_s = self.loop.now_s
        await self._wait_until(lambda: self._unrecovered() or self._unfetched(mended_s), limit_s)
        await IsolatedFailure(
            self.cluster,
            self.invariants,
            self.traffic,
            self.verdict,
            self.history,
            self.loop,
        ).run()

    async def _settle(self) -> None:
        """Wait until the cluster has recovered, then until all clients have finished."""
        await self._wait_until(self._unsettled, self.scenario.recovery_s)
        await self._wait_until(
            lambda: self.traffic.unfinished or self._unsettled(), self.scenario.drain_s
        )

    async def _wait_until(self, reason_not: Callable[[], str | None], limit_s: float) -> None:
        """Wait until `reason_not` returns None."""
        ends_s = self.loop.now_s + limit_s
        while (reason := reason_not()) is not None:
            if self.loop.now_s > ends_s:
                self.verdict.violated(f"{limit_s:.0f} s after everything was healed: {reason}")
            self.verdict.raise_if_violated()
            await asyncio.sleep(_SETTLE_CHECK_S)

    def _unsettled(self) -> str | None:
        """Return why the cluster is not at rest; None if it is."""
        return (
            self._unrecovered()
            or self._different_ends()
            or self._unflushed()
            or self._outlived()
            or self._unmoved()
        )

    def _unrecovered(self) -> str | None:
        """Return why the cluster has not recovered; None if it has."""
        nodes = self.cluster.nodes.values()
        leaders = [node for node in nodes if _leads_quorum(node)]
        if len(leaders) != 1:
            return f"{len(leaders)} leaders of the metadata quorum"
        if leaders[0].node is None or not leaders[0].node.is_active_controller:
            return f"{leaders[0]} leads the quorum without an active controller"
        image = self.invariants.metadata.newest
        for node in nodes:
            if node.node is None:
                return f"{node} is down"
            behind = self.invariants.metadata.end_offset - node.node.publisher.last_committed_offset
            if behind > 5:
                return f"{node} has not read the last {behind} offsets of the metadata"
        for node in self.cluster.brokers:
            known = image.cluster.brokers.get(node.plan.node_id)
            if known is None or not known.is_active:
                return f"{node} is fenced"
            if node.node is None or (reason := node.node.unready_reason()) is not None:
                return f"{node} is not ready: {reason}"
            if (reason := unapplied_settings(node, image)) is not None:
                return reason
        for topic in image.topics.by_name.values():
            for index, partition in topic.partitions.items():
                name = f"{topic.name}-{index}"
                if partition.leader < 0 or set(partition.isr) != set(partition.replicas):
                    return f"not in sync: {story_of(name, partition)}"
                if partition.is_reassigning:
                    return f"being reassigned: {story_of(name, partition)}"
                elsewhere = [
                    replica
                    for replica in partition.replicas
                    if self._is_elsewhere(replica, topic.name, index, partition)
                ]
                if elsewhere:
                    return f"brokers {elsewhere} have {name} not where it is recorded"
        return None

    def _different_ends(self) -> str | None:
        """Return a partition whose replicas are not equally long; None if there is none."""
        for topic in self.invariants.metadata.newest.topics.by_name.values():
            for index, partition in topic.partitions.items():
                ends = {
                    replica: self._ends(replica, topic.name, index)
                    for replica in partition.replicas
                }
                if len(set(ends.values())) != 1:
                    return (
                        f"the replicas of {topic.name}-{index} differ in "
                        f"(log end, high watermark): {ends}"
                    )
        return None

    def _unfetched(self, since_s: float) -> str | None:
        """Return a follower that has not fetched since a time; None if all have.

        A cut delays requests: a leader may take a follower into the ISR that lost its connection
        long ago and has no new one yet.
        """
        for node in self.cluster.brokers:
            broker = self._broker(node.plan.node_id)
            for partition in () if broker is None else broker.replicas:
                leader = partition.leader
                for follower in () if leader is None else leader.followers:
                    fetched_s = node.machine.clock.true_s(follower.last_fetch_ms / 1000)
                    if fetched_s < since_s:
                        return f"broker {follower.replica_id} has not fetched {partition}"
        return None

    def _unflushed(self) -> str | None:
        """Return a log whose finished segments are not flushed; None if there is none."""
        for node in self.cluster.brokers:
            if node.node is not None and node.node.broker is not None:
                for partition in node.node.broker.replicas:
                    if not partition.is_offline and partition.log.has_unflushed_segments:
                        return f"{node} has not flushed finished segments of {partition.log}"
        return None

    def _unmoved(self) -> str | None:
        """Return a move that has not ended, without a limit of its rate; None if there is none."""
        for node in self.cluster.brokers:
            if (broker := self._broker(node.plan.node_id)) is not None:
                broker.replication_quotas.directories.limit_bytes_per_s = _UNLIMITED
                if (reason := unfinished_move(node, broker)) is not None:
                    return reason
        return None

    def _outlived(self) -> str | None:
        """Return an offset that a group has for a deleted topic; None if there is none."""
        topics = self.invariants.metadata.newest.topics.by_name
        for node in self.cluster.brokers:
            if node.node is None or node.node.broker is None:
                continue
            for driver in node.node.broker.groups.shards.values():
                offsets = driver.shard.offsets
                for group_id in offsets.group_ids():
                    for partition, committed in offsets.of_group(group_id).items():
                        topic = topics.get(partition.topic)
                        if topic is None or topic.topic_id != committed.topic_id:
                            return f"{group_id} has an offset of the deleted topic of {partition}"
        return None

    def _is_elsewhere(
        self, broker_id: int, topic: str, index: int, partition: PartitionRegistration
    ) -> bool:
        """Return whether a broker has a replica in another directory than is recorded.

        The target of a move is recorded before the replica is there.
        """
        broker = self._broker(broker_id)
        hosted = None if broker is None else broker.replicas.lookup(topic, index)
        if broker is None or hosted is None:
            return False
        move = broker.replicas.moves.get(hosted)
        if move is not None and move.course.is_assigned:
            return False
        recorded = partition.directory(broker_id)
        if self.invariants.metadata.newest.metadata_version < DIRECTORY_ASSIGNMENT_LEVEL:
            recorded = hosted.directory.directory_id
        return recorded != hosted.directory.directory_id

    def _broker(self, broker_id: int) -> BrokerServer | None:
        node = self.cluster.nodes[broker_id].node
        return None if node is None else node.broker

    def _ends(self, broker_id: int, topic: str, index: int) -> tuple[int, int]:
        node = self.cluster.nodes[broker_id].node
        partition = None
        if node is not None and node.broker is not None:
            partition = node.broker.replicas.lookup(topic, index)
        return (
            (-1, -1)
            if partition is None
            else (partition.log.log_end_offset, partition.high_watermark)
        )


def simulate(scenario: Scenario) -> SimulationOutcome:
    """Run a scenario to its end.

    Raises:
        TimeLimitReached: an alarm of the test runner has interrupted the run.
    """
    # Finalizers of tasks that never end must not run during this run or the next.
    gc.disable()
    # Garbage of the finalizers of the run before would be frozen, too, and never be freed.
    gc.collect()
    gc.freeze()
    simulation = Simulation(scenario)
    try:
        return simulation.run()
    finally:
        with _quiet_finalizers():
            _close_coroutines(simulation.loop)
            del simulation
            # A finalizer may run the `finally` of a coroutine, and that may make another one.
            for _ in range(_MAX_COLLECTIONS):
                if not gc.collect():
                    break
        gc.unfreeze()
        gc.enable()


def _close_coroutines(loop: SimulatedLoop) -> None:
    """Close the coroutines of tasks that never end, from the outermost one inwards.

    The collector may begin with an inner one. CPython 3.11 crashes if that frees the last reference
    to the outer one, whose own finalizer then closes the inner one again.
    """
    for task in asyncio.all_tasks(loop):
        coroutine = task.get_coro()
        if isinstance(coroutine, CoroutineType):
            with suppress(Exception):  # a `finally` needs a running loop
                coroutine.close()


@contextmanager
def _quiet_finalizers() -> Iterator[None]:
    """Hide what the tasks of ended hosts still do: none of it happens on a host that is gone.

    Some were never awaited, others fail in a `finally` because no loop runs any more.
    """
    before, sys.unraisablehook = sys.unraisablehook, lambda unraisable: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        sys.unraisablehook = before


def _leads_quorum(node: SimulatedNode) -> bool:
    core = node.quorum_core
    return core is not None and isinstance(core.role, Leader)


@contextmanager
def _alarms_interrupting(loop: SimulatedLoop) -> Iterator[None]:
    """End the run when the handler of an alarm is called.

    The time limit of a test raises an exception in the callback that happens to run. A simulated
    node may take this for an error of its own and stop, which would look like a broken promise.
    """
    handler = signal.getsignal(signal.SIGALRM)
    if not callable(handler) or threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        loop.is_interrupted = True
        handler(number, frame)

    signal.signal(signal.SIGALRM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, handler)


@contextmanager
def _logging_to(history: History) -> Iterator[None]:
    """Send the log of the nodes only to the history."""
    logger = logging.getLogger("spindle")
    before = logger.level, logger.propagate, logger.handlers
    logger.setLevel(logging.INFO)
    logger.propagate, logger.handlers = False, [history]
    try:
        yield
    finally:
        level, logger.propagate, logger.handlers = before
        logger.setLevel(level)
