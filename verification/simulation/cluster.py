"""The nodes of a simulated cluster: formatted, started, killed, stopped and started again.

Each is the real `Node` with its real listeners, handlers, quorum and logs, on a `SimulatedMachine`.
"""

import asyncio
from collections.abc import Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, Final

from spindle.common.errors import ConfigError, CorruptLog, LogDirectoryFailed
from spindle.common.uuids import uuid_from_random, uuid_text
from spindle.config.node_config import NodeConfig
from spindle.disks.executor import DirectoryExecutor
from spindle.local.formatting.directories import format_directories
from spindle.local.formatting.format_options import FormatOptions, format_request
from spindle.raft.core import QuorumCore
from spindle.runtime.node import Node
from verification.simulation.clock import SkewedClock
from verification.simulation.delayed_metadata import HeldMetadata
from verification.simulation.disk import Interrupted
from verification.simulation.incarnation import Life
from verification.simulation.loop import SimulatedLoop
from verification.simulation.machine import SimulatedMachine
from verification.simulation.scenario import NodePlan, Scenario
from verification.simulation.trace import History

if TYPE_CHECKING:
    from verification.simulation.invariants import Invariants

BROKER_PORT: Final = 9092
CONTROLLER_PORT: Final = 9093


class SimulatedNode:
    """One node through all of its lives.

    Attributes:
        node: the running process; None while it is down.
        is_stopping: it was asked to leave in order.
        is_down: set at the end of each life.
        hold_metadata: the probability that committed metadata is held and delivered with later one.
    """

    def __init__(
        self,
        plan: NodePlan,
        properties: Mapping[str, str],
        loop: SimulatedLoop,
        history: History,
        random: Random,
        clock: SkewedClock,
        hold_random: Random,
    ) -> None:
        self.plan = plan
        self.config = NodeConfig.from_properties(properties)
        self.host = host_name(plan.node_id)
        self.machine = SimulatedMachine(self.host, loop, random, clock, self._interrupted)
        self.node: Node | None = None
        self.life: Life | None = None
        self.is_stopping = False
        self.is_down = asyncio.Event()
        self.observer: Invariants | None = None
        self.hold_metadata = 0.0
        self._properties = properties
        self._hold_random = hold_random
        self._loop = loop
        self._history = history
        self._lives = 0
        self._graveyard: list[Any] = []

    @property
    def is_up(self) -> bool:
        return self.node is not None

    @property
    def quorum_core(self) -> QuorumCore | None:
        """The state of the quorum as the running process sees it; None before it does."""
        quorum = None if self.node is None else self.node.quorum
        return quorum.core if quorum is not None and quorum.is_started else None

    @property
    def offline_directories(self) -> dict[str, LogDirectoryFailed]:
        """The failures of the directories that the running process uses, by path.

        A directory that is not in use yet, or not any more, has not failed: a stop breaks off its
        addition or retirement, and whoever asked for that does not learn how far it came.
        """
        executors: Mapping[str, DirectoryExecutor] = self.machine.executors
        broker = None if self.node is None else self.node.broker
        if broker is not None:
            metadata_log_dir = self.config.metadata_log_dir
            executors = {metadata_log_dir: executors[metadata_log_dir]}
            executors |= {d.path: d.executor for d in broker.replicas.directories}
        failures = {path: executor.failure for path, executor in executors.items()}
        return {path: failure for path, failure in failures.items() if failure is not None}

    def format(
        self,
        cluster_id: str,
        initial_controllers: str | None,
        release: str | None,
        features: tuple[str, ...] = (),
    ) -> None:
        """Format what is not formatted yet; without initial controllers the node joins a quorum."""
        is_dynamic = self.config.is_controller and not self.config.quorum_voters
        options = FormatOptions(
            cluster_id,
            ignore_formatted=True,
            release_version=release,
            features=features,
            initial_controllers=initial_controllers if is_dynamic else None,
            no_initial_controllers=is_dynamic and initial_controllers is None,
        )
        machine = self.machine
        request = format_request(self.config, options, machine.new_uuid, machine.random.randbytes)
        format_directories(
            request, machine.disks, machine.new_uuid, machine.wall_clock_ms(), lambda line: None
        )
        for path in {*self.config.log_dirs, self.config.metadata_log_dir}:
            self._sync_names(path)

    def replace_disk(self, path: str, cluster_id: str) -> None:
        """Kill the process and replace one of its disks by an empty one."""
        self.kill()
        disks = self.machine.disks
        disks.heal(path)
        disks.faults.clear()
        disks.remove_tree(path)
        context = Life(self.host, 0, self.machine.clock).context()
        context.run(self.format, cluster_id, None, None)
        self._history.note(f"{self.host} has an empty disk at {path}")

    def order_log_dirs(self, paths: Sequence[str]) -> None:
        """Let the next life have log.dirs in this order; the metadata directory stays."""
        self._properties = {
            **self._properties,
            "log.dirs": ",".join(paths),
            "metadata.log.dir": self.config.metadata_log_dir,
        }
        self.config = NodeConfig.from_properties(self._properties)
        self._history.note(f"{self.host} has log.dirs={','.join(paths)}")

    @property
    def data_directories(self) -> list[str]:
        """The log directories without the metadata: the node can do without them."""
        if not self.config.is_broker:
            return []
        return [path for path in self.config.log_dirs if path != self.config.metadata_log_dir]

    def _sync_names(self, path: str) -> None:
        disks = self.machine.disks
        parent = path.rpartition("/")[0]
        disks.sync_directory(parent or "/")
        for name in disks.list_directory(path):
            if disks.is_directory(f"{path}/{name}"):
                self._sync_names(f"{path}/{name}")
        disks.sync_directory(path)

    # -- up and down

    def start(self) -> None:
        """Begin a new life."""
        assert self.node is None, f"{self.host} is up"
        self._lives += 1
        self.is_stopping = False
        self.is_down.clear()
        self.machine.executors.clear()
        self.machine.disks.broken.clear()
        life = Life(self.host, self._lives, self.machine.clock)
        self.life = life
        context = life.context()
        self.node = context.run(Node, self.config, self.machine)
        if self.observer is not None:
            self.observer.watch(self)
        HeldMetadata(self.node.publisher, self._loop, self._hold_random, lambda: self.hold_metadata)
        self._history.note(f"{self.host} starts (life {self._lives})")
        self._loop.create_task(self._live(self.node, life), context=context)

    async def _live(self, node: Node, life: Life) -> None:
        reason: str | None
        try:
            await node.start()
            self._history.note(f"{self.host} serves")
            reason = await node.wait_stopped()
        except (ConfigError, CorruptLog, LogDirectoryFailed, OSError) as error:
            reason = f"does not start: {error}"
        except Interrupted:
            self._interrupted()
            return
        await node.stop()
        self._end(life, f"stopped: {reason or 'in order'}", is_silent=False)

    def stop(self) -> None:
        """Ask it to leave in order."""
        if self.node is not None and not self.is_stopping:
            self._history.note(f"{self.host} is asked to stop")
            self.is_stopping = True
            self.node.request_stop()

    def kill(self) -> None:
        """Kill the process; what it wrote stays."""
        self.machine.disks.cut_power_after(None)
        if self.life is not None:
            self._end(self.life, "killed", is_silent=False)

    def cut_power(self) -> None:
        """Cut the power of the host; unsynced bytes are lost."""
        if self.life is not None:
            self._end(self.life, "lost power", is_silent=True)
            self.machine.disks.lose_unsynced()

    def _interrupted(self) -> None:
        if self.machine.disks.is_killed:
            self.kill()
        else:
            self.cut_power()

    def _end(self, life: Life, how: str, *, is_silent: bool) -> None:
        if life.is_over:
            return
        life.is_over = True
        node, self.node, self.life = self.node, None, None
        self.is_down.set()
        # Finalizers of the dead process must not run in between.
        self._graveyard.append(node)
        self._history.note(f"{self.host} {how}")
        self._loop.network.host_gone(self.host, is_silent=is_silent)
        if self.observer is not None and node is not None:
            self.observer.ended(self, life, node, is_power_lost=is_silent)

    def __str__(self) -> str:
        return self.host


class SimulatedCluster:
    """All nodes of a scenario, formatted and down."""

    def __init__(
        self, scenario: Scenario, loop: SimulatedLoop, history: History, random: Random
    ) -> None:
        self.scenario = scenario
        self.loop = loop
        self.cluster_id = uuid_text(uuid_from_random(random.randbytes))
        controllers = [p.node_id for p in scenario.nodes if "controller" in p.roles]
        voters = ",".join(
            f"{i}@{host_name(i)}:{CONTROLLER_PORT}:{uuid_text(uuid_from_random(random.randbytes))}"
            for i in controllers
        )
        self.nodes: dict[int, SimulatedNode] = {}
        for plan in scenario.nodes:
            node = SimulatedNode(
                plan,
                _properties(plan, scenario, controllers),
                loop,
                history,
                Random(random.randbytes(8)),
                SkewedClock(plan.clock_rate, plan.clock_offset_ms),
                Random(f"held metadata of node {plan.node_id} in {scenario.seed}"),
            )
            node.machine.disks.default_slowness_s = scenario.disk_s
            node.hold_metadata = scenario.chances.hold_metadata
            self.nodes[plan.node_id] = node
            context = Life(node.host, 0, node.machine.clock).context()
            context.run(node.format, self.cluster_id, voters, scenario.release, scenario.features)
        self.brokers = [n for n in self.nodes.values() if n.config.is_broker]
        self.controllers = [n for n in self.nodes.values() if n.config.is_controller]

    @property
    def bootstrap(self) -> list[tuple[str, int]]:
        return [(node.host, BROKER_PORT) for node in self.brokers]


def host_name(node_id: int) -> str:
    """Return the host name of a node."""
    return f"node{node_id}"


def _properties(plan: NodePlan, scenario: Scenario, controllers: list[int]) -> Mapping[str, str]:
    host = host_name(plan.node_id)
    listeners = []
    if "broker" in plan.roles:
        listeners.append(f"PLAINTEXT://{host}:{BROKER_PORT}")
    if "controller" in plan.roles:
        listeners.append(f"CONTROLLER://{host}:{CONTROLLER_PORT}")
    properties = {
        "process.roles": ",".join(plan.roles),
        "node.id": str(plan.node_id),
        "listeners": ",".join(listeners),
        "controller.listener.names": "CONTROLLER",
        "log.dirs": ",".join(f"/disk{i}" for i in range(1, plan.directories + 1)),
        **scenario.properties,
    }
    if plan.metadata_directory is not None:
        properties["metadata.log.dir"] = plan.metadata_directory
    addresses = [f"{host_name(i)}:{CONTROLLER_PORT}" for i in controllers]
    if scenario.is_dynamic:
        properties["controller.quorum.bootstrap.servers"] = ",".join(addresses)
        if scenario.deeds.joins_by_itself and "controller" in plan.roles:
            properties["controller.quorum.auto.join.enable"] = "true"
    else:
        properties["controller.quorum.voters"] = ",".join(
            f"{i}@{address}" for i, address in zip(controllers, addresses, strict=True)
        )
    return properties
