"""Periodic work of a broker: a fault in one piece of it leaves the rest in order."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from spindle.config.broker_values import BrokerValues
from spindle.config.node_config import NodeConfig
from spindle.disks.cleaning_rate import CleaningRate
from spindle.disks.pending_epoch_checkpoints import PendingEpochCheckpoints
from spindle.log.cleaning.abort import CleaningAbort
from spindle.log.cleaning.cleaning import CleaningResult, CleaningSettings
from spindle.replicas.replica_manager import ReplicaManager
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

    def advance(self, max_bytes: int | None) -> int:
        raise LookupError("a mistake")


class Directory:
    """A log directory, its executor, its logs and their cleaner in one."""

    path = "/disk"
    is_offline = False

    def __init__(self) -> None:
        self.executor = self.cleaner = self.store = self
        self.new_epochs = PendingEpochCheckpoints()
        self.passes: Iterator[FaultyPass | SlowPass] = iter([FaultyPass()])
        self.cleaned: asyncio.Queue[CleaningResult] = asyncio.Queue()
        self.given_up = asyncio.Event()
        self.flushed = asyncio.Event()

    async def submit(self, work: Callable[..., Any], *arguments: Any) -> Any:
        return work(*arguments)

    submit_beside = submit

    def next_pass(self, now_ms: int, settings: CleaningSettings) -> "FaultyPass | SlowPass | None":
        return next(self.passes, None)

    def finish(self, cleaned: CleaningResult, now_ms: int, duration_ms: int) -> bool:
        self.cleaned.put_nowait(cleaned)
        return False

    def give_up_failed(self, cleaning: FaultyPass, error: Exception, now_ms: int) -> None:
        assert isinstance(error, LookupError)
        self.given_up.set()

    def checkpoint_high_watermarks(self) -> None:
        """Nothing to write."""

    def submit_nowait(self, work: Callable[..., Any], *arguments: Any) -> None:
        work(*arguments)

    def begin_flushes_of_finished_segments(self) -> list[Any]:
        self.flushed.set()
        return []


def housekeeping(*directories: Directory, **properties: str) -> Housekeeping:
    replicas = cast(ReplicaManager, type("ReplicaManager", (), {"directories": directories}))
    overrides = {key.replace("_", "."): value for key, value in properties.items()}
    node = NodeConfig.from_properties({**PROPERTIES, **overrides})
    return Housekeeping(replicas, node, lambda: 0)


async def test_a_compaction_pass_ends_whatever_it_meets() -> None:
    directory = Directory()
    keeping = housekeeping(directory, log_initial_task_delay_ms="3600000")
    keeping.start()
    await asyncio.wait_for(directory.given_up.wait(), 20)
    await keeping.stop()


DONE = cast(CleaningResult, object())


class SlowPass:
    """A pass of three steps of 1 MB."""

    def __init__(self) -> None:
        self.plan = type("Plan", (), {"signal": CleaningAbort(), "path": "/disk/a-0"})
        self.result: CleaningResult | None = None
        self.steps: list[int | None] = []

    def advance(self, max_bytes: int | None) -> int:
        self.steps.append(max_bytes)
        if len(self.steps) == 3:
            self.result = DONE
        return 1_000_000


async def test_a_pass_pauses_to_keep_to_its_rate_which_can_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []
    pause_s = CleaningRate.pause_s
    limited, unlimited = SlowPass(), SlowPass()
    directory = Directory()
    directory.passes = iter([limited, unlimited])
    compaction = housekeeping(directory).compaction
    node = NodeConfig.from_properties(PROPERTIES)
    limit = "log.cleaner.io.max.bytes.per.second"
    compaction.update(BrokerValues(node, {limit: "1000000"}))

    def note_pause_s(rate: CleaningRate, used_bytes: int, now_s: float) -> float:
        pauses.append(pause_s(rate, used_bytes, now_s))
        compaction.update(BrokerValues(node, {limit: "4000000"}))
        return 0.0

    with monkeypatch.context() as patch:
        patch.setattr(CleaningRate, "pause_s", note_pause_s)
        compaction.follow_directories()
        assert await directory.cleaned.get() is DONE
    assert limited.steps == [300_000, 1_200_000, 1_200_000]
    compaction.update(BrokerValues(node))
    assert await directory.cleaned.get() is DONE
    assert unlimited.steps == [None] * 3
    assert 0.99 < pauses[0] <= 1.0
    assert 0.2 < pauses[1] <= 0.25
    await compaction.stop()


async def test_a_long_pause_ends_when_the_limit_is_raised() -> None:
    slow = SlowPass()
    directory = Directory()
    directory.passes = iter([slow])
    compaction = housekeeping(directory).compaction
    node = NodeConfig.from_properties(PROPERTIES)
    compaction.update(BrokerValues(node, {"log.cleaner.io.max.bytes.per.second": "0"}))
    compaction.follow_directories()
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(slow.steps) == 1
    compaction.update(BrokerValues(node))
    assert await directory.cleaned.get() is DONE
    await compaction.stop()


async def test_compaction_ends_at_once_although_a_setting_changes_in_the_same_moment() -> None:
    directory = Directory()
    directory.passes = iter(())
    compaction = housekeeping(directory).compaction
    values = BrokerValues(NodeConfig.from_properties(PROPERTIES))
    compaction.update(values)
    compaction.follow_directories()
    for _ in range(5):
        await asyncio.sleep(0)
    compaction.update(values)
    await asyncio.sleep(0)
    await asyncio.wait_for(compaction.stop(), 10)


async def test_the_memory_of_compaction_is_for_all_directories_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    directories = [Directory(), Directory()]
    seen: asyncio.Queue[CleaningSettings] = asyncio.Queue()
    for directory in directories:
        directory.passes = iter(())
        monkeypatch.setattr(
            directory, "next_pass", lambda now_ms, settings: seen.put_nowait(settings)
        )
    keeping = housekeeping(*directories, log_initial_task_delay_ms="0")
    keeping.start()
    cleaning_settings = [await asyncio.wait_for(seen.get(), 20) for _ in range(2)]
    await keeping.stop()
    assert set(cleaning_settings) == {CleaningSettings(64 * 2**20, 0.9, 256 * 1024)}


async def test_finished_segments_are_flushed_from_the_start_on() -> None:
    directory = Directory()
    keeping = housekeeping(directory)
    keeping.start()
    await asyncio.wait_for(directory.flushed.wait(), 20)
    await keeping.stop()
