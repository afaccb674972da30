"""Capacities of directories that answer, hang and fail."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

from spindle.common.errors import LogDirectoryFailed
from spindle.disks.log_directory import LogDirectory
from spindle.runtime.disks.capacity import DirectoryCapacities


class StandIn:
    """A directory, its store and its executor; the test answers the questions."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.is_offline = False
        self.questions: list[asyncio.Future[tuple[int, int]]] = []

    @property
    def executor(self) -> "StandIn":
        return self

    @property
    def store(self) -> "StandIn":
        return self

    def capacity(self) -> tuple[int, int]:
        raise AssertionError("the executor of this stand-in runs nothing")

    def submit(self, function: Callable[..., Any]) -> asyncio.Future[tuple[int, int]]:
        self.questions.append(asyncio.get_running_loop().create_future())
        return self.questions[-1]


async def test_a_directory_that_hangs_keeps_its_last_capacity_and_is_asked_once() -> None:
    quick, slow = StandIn("/quick"), StandIn("/slow")
    directories = cast(list[LogDirectory], [quick, slow])
    capacities = DirectoryCapacities(wait_s=0)
    assert await capacities.ask(directories) == {}
    quick.questions[0].set_result((10, 4))
    slow.questions[0].set_result((20, 8))
    assert await capacities.ask(directories) == {"/quick": (10, 4), "/slow": (20, 8)}
    await capacities.ask(directories)
    quick.questions[1].set_result((10, 3))
    await capacities.ask(directories)
    assert await capacities.ask(directories) == {"/quick": (10, 3), "/slow": (20, 8)}
    assert len(slow.questions) == 2, "the second question is still open"


async def test_a_directory_that_fails_has_no_capacity() -> None:
    stand_in = StandIn("/d")
    directories = cast(list[LogDirectory], [stand_in])
    capacities = DirectoryCapacities(wait_s=0)
    await capacities.ask(directories)
    stand_in.questions[0].set_result((10, 4))
    assert await capacities.ask(directories) == {"/d": (10, 4)}
    await capacities.ask(directories)
    stand_in.questions[1].set_exception(LogDirectoryFailed("/d", "unplugged"))
    stand_in.is_offline = True
    assert await capacities.ask(directories) == {}
