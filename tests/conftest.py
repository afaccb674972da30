"""Which tests run, in which order, and what is said of them while they run.

Tests marked `full` take long: `make test` leaves them out, `make test-full` runs all of them, and
CI runs a share of their modules, another one each day.

Tests may be coroutine functions: pytest-asyncio runs each on an event loop of its own. Here such a
test gets a time limit, and fails if it leaves a task behind.
"""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Final

import pytest

# Far above what a test takes on a busy machine. It ends before pytest's own limit, so that the
# test's contexts close, and the report shows what the coroutine waited for.
COROUTINE_LIMIT_S: Final = 60
ENDING_LIMIT_S: Final = 5


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--share",
        metavar="K/N",
        help="of the tests marked `full`, run those whose module belongs to share K of N (from 1)",
    )


def pytest_configure(config: pytest.Config) -> None:
    share = config.getoption("--share")
    if share is not None:
        parse_share(share)
    if not config.getoption("--collect-only"):
        config.pluginmanager.register(FailuresAsTheyCome(config), "failures-as-they-come")


def parse_share(text: str) -> tuple[int, int]:
    """Return K and N of a share "K/N".

    Raises:
        UsageError: the text is not of this form, or K is not in 1 to N.
    """
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise pytest.UsageError(f"--share {text}: K/N with K from 1 to N is needed, such as 2/6")
    return int(number), int(count)


# After the folders' own conftest, which adds markers.
@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take the share, and let long modules begin first: no worker waits for one at the end."""
    share = config.getoption("--share")
    if share is not None:
        number, count = parse_share(share)
        full = [item for item in items if item.get_closest_marker("full") is not None]
        # Neighbours by name, which often take equally long, come into different shares.
        modules = sorted({item.path for item in full})[number - 1 :: count]
        left_out = {item for item in full if item.path not in modules}
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]
    items.sort(key=_place)


def _place(item: pytest.Item) -> int:
    """Return 0 for modules that start Spark, 1 for those of the simulation, 2 for all others."""
    if item.get_closest_marker("spark") is not None:
        return 0
    return 1 if item.path.parent.name == "simulation" else 2


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Run a coroutine test within its time limit, and see that it leaves no task."""
    if item.get_closest_marker("asyncio") is None or not isinstance(item, pytest.Function):
        return (yield)
    given = getattr(item.obj, "hypothesis", None)
    owner, name = (item, "obj") if given is None else (given, "inner_test")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, bounded(getattr(owner, name)))
        return (yield)


def bounded(test: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    """Return the test with a limit of `COROUTINE_LIMIT_S` and a check of the tasks it leaves."""

    @functools.wraps(test)
    async def whole(*args: Any, **kwargs: Any) -> None:
        before = asyncio.all_tasks()
        async with asyncio.timeout(COROUTINE_LIMIT_S):
            await test(*args, **kwargs)
        left = asyncio.all_tasks() - before
        if left:
            # Tasks that were cancelled, or whose connection was closed, end in the next rounds.
            _, left = await asyncio.wait(left, timeout=ENDING_LIMIT_S)
        assert not left, f"the test left tasks behind: {left}"

    return whole


class FailuresAsTheyCome:
    """Names each failed test when it fails; pytest's own report comes at the end of the run."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._is_counted = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._say(f"FAILED {report.nodeid} ({report.when})")

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: object, ids: list[str]) -> None:
        """Say how many tests there are, once: every worker collects the same ones."""
        if not self._is_counted:
            self._is_counted = True
            modules = len({name.partition("::")[0] for name in ids})
            self._say(f"{len(ids):,} tests in {modules} modules")

    def _say(self, line: str) -> None:
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if terminal is not None and not hasattr(self._config, "workerinput"):
            terminal.write(f"\n{line}\n")
