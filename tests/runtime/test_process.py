"""The exit code of the process of a node, in every state in which a signal may stop it."""

import asyncio
import gc
import os
import signal
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from spindle.common.errors import ConfigError
from spindle.config.node_config import NodeConfig
from spindle.runtime import process
from spindle.runtime.process import run


class FakeNode:
    """A node that waits for a stop in its start, or when it runs; `fatal` is why it ends."""

    waits_in_start = False
    fatal: str | None = None
    refusal: Exception | None = None
    signals: tuple[signal.Signals, ...] = ()

    def __init__(self, *_: object) -> None:
        self._stopped = asyncio.Event()

    @property
    def is_stopping(self) -> bool:
        return self._stopped.is_set()

    def request_stop(self) -> None:
        self._stopped.set()

    async def start(self) -> None:
        for number in self.signals:
            os.kill(os.getpid(), number)
        if self.refusal is not None:
            raise self.refusal
        if self.waits_in_start:
            await self._stopped.wait()

    async def wait_stopped(self) -> str | None:
        if self.fatal is None:
            await self._stopped.wait()
        return self.fatal

    async def stop(self) -> None:
        pass


@pytest.fixture
def exit_code(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    def code(**attributes: Any) -> int:
        node_class = type("OneNode", (FakeNode,), attributes)
        monkeypatch.setattr(process, "Node", node_class)
        monkeypatch.setattr(gc, "freeze", lambda: None)

        return asyncio.run(run(cast("NodeConfig", SimpleNamespace(node_id=1))))

    return code


@pytest.fixture
def hangups_that_interrupt() -> Iterator[None]:
    """Handle SIGHUP as every command of Spindle does: an exception wherever the code is."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGHUP, interrupt)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("waits_in_start", [False, True])
@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)],
)
@pytest.mark.usefixtures("hangups_that_interrupt")
def test_a_signal_ends_a_node_with_its_number_wherever_it_waits(
    number: signal.Signals, code: int, waits_in_start: bool, exit_code: Callable[..., int]
) -> None:
    assert exit_code(waits_in_start=waits_in_start, signals=(number,)) == code


def test_the_first_signal_counts(exit_code: Callable[..., int]) -> None:
    # Python handles signals that arrived together in the order of their numbers.
    assert exit_code(signals=(signal.SIGINT, signal.SIGTERM)) == 130


def test_a_fault_counts_more_than_a_signal(exit_code: Callable[..., int]) -> None:
    assert exit_code(fatal="the disk died", signals=(signal.SIGTERM,)) == 1
    assert exit_code(refusal=ConfigError("no"), signals=(signal.SIGTERM,)) == 1


def test_a_node_under_nohup_outlives_its_terminal(exit_code: Callable[..., int]) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert exit_code(fatal="the disk died", signals=(signal.SIGHUP,)) == 1
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        assert exit_code(signals=(signal.SIGHUP, signal.SIGTERM)) == 143
    finally:
        signal.signal(signal.SIGHUP, before)
