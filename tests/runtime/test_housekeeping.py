"""Periodic work of a broker: a fault in one piece of it leaves the rest in order."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

from spindle.config.node_config import NodeConfig
from spindle.replicas.replica_manager import Replicas
from spindle.runtime.broker.housekeeping import Housekeeping

PROPERTIES = {
    "process.roles": "broker",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "h1:9093",
}


class FaultyPass:
    """A compaction pass that meets a mistake of this program."""

    plan = "the plan"

    def run(self) -> None:
        raise LookupError("a mistake")


class Directory:
    """A log directory, its executor, its logs and their cleaner in one."""

    path = "/disk"
    is_offline = False

    def __init__(self) -> None:
        self.executor = self.cleaner = self.store = self
        self.passes = iter([FaultyPass()])
        self.given_up = asyncio.Event()
        self.flushed = asyncio.Event()

    async def submit(self, work: Callable[..., Any], *arguments: Any) -> Any:
        return work(*arguments)

    submit_beside = submit

    def next_pass(self, now_ms: int, map_bytes: int) -> FaultyPass | None:
        return next(self.passes, None)

    def give_up_uncleanable(self, plan: str) -> None:
        assert plan == FaultyPass.plan
        self.given_up.set()

    def checkpoint_high_watermarks(self) -> None:
        """Nothing to write."""

    def submit_nowait(self, work: Callable[..., Any], *arguments: Any) -> None:
        work(*arguments)

    def begin_flushes_of_finished_segments(self) -> list[Any]:
        self.flushed.set()
        return []


def housekeeping(directory: Directory, **properties: str) -> Housekeeping:
    replicas = cast(Replicas, type("Replicas", (), {"directories": [directory]}))
    overrides = {key.replace("_", "."): value for key, value in properties.items()}
    node = NodeConfig.from_properties({**PROPERTIES, **overrides})
    return Housekeeping(replicas, node, lambda: 0)


def test_a_compaction_pass_ends_whatever_it_meets() -> None:
    async def scenario() -> None:
        directory = Directory()
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        keeping = housekeeping(directory, log_initial_task_delay_ms="0")
        keeping.start()
        await asyncio.wait_for(directory.given_up.wait(), 20)
        await keeping.stop()

    asyncio.run(scenario())


def test_finished_segments_are_flushed_from_the_start_on() -> None:
    async def scenario() -> None:
        directory = Directory()
        keeping = housekeeping(directory)
        keeping.start()
        await asyncio.wait_for(directory.flushed.wait(), 20)
        await keeping.stop()

    asyncio.run(scenario())
