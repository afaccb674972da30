"""The one way in which tests wait for a condition that no event announces."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

LIMIT_S = 50.0
"""Below the 60 s of `tests/conftest.py`, so that the error names the condition."""


def wait_until(
    condition: Callable[[], object],
    what: str | Callable[[], object] = "",
    *,
    limit_s: float = LIMIT_S,
    pause_s: float = 0.05,
) -> None:
    """Return when the condition is true; the thread sleeps between two checks.

    Args:
        what: the expected event, or a function that describes the state, for the error; by default
            the source of the condition.

    Raises:
        AssertionError: the condition was false for `limit_s`.
    """
    deadline_s = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline_s:
            raise AssertionError(_message(condition, what, limit_s))
        time.sleep(pause_s)


def wait_for(
    read: Callable[[], T],
    is_expected: Callable[[T], object] = bool,
    what: str | Callable[[], object] = "",
    *,
    limit_s: float = LIMIT_S,
    pause_s: float = 0.05,
) -> T:
    """Return the first value that is expected, by default one that is true.

    Args:
        read: returns the present value.
        what: as in `wait_until`; by default the source of `is_expected` or `read`.

    Raises:
        AssertionError: no value was as expected for `limit_s`; the error shows the last one.
    """
    values: list[T] = []

    def is_there() -> object:
        values[:] = [read()]
        return is_expected(values[0])

    def state() -> str:
        described = _described(read if is_expected is bool else is_expected, what)
        return f"{described}: the last value is {values[0]!r}"

    wait_until(is_there, state, limit_s=limit_s, pause_s=pause_s)
    return values[0]


async def until(
    condition: Callable[[], bool | Awaitable[bool]],
    what: str | Callable[[], object] = "",
    *,
    limit_s: float = LIMIT_S,
    pause_s: float = 0.005,
) -> None:
    """Return when the condition is true; the event loop runs between two checks.

    Args:
        condition: a function or a coroutine function.
        what: as in `wait_until`.
        pause_s: in the time of the loop, which may be virtual; 0 waits for one turn of the loop.

    Raises:
        AssertionError: the condition was false for `limit_s`.
    """
    try:
        async with asyncio.timeout(limit_s) as limit:
            while not await _holds(condition):  # noqa: ASYNC110 - no event announces it
                await asyncio.sleep(pause_s)
    except TimeoutError:
        if not limit.expired():
            raise
        raise AssertionError(_message(condition, what, limit_s)) from None


async def _holds(condition: Callable[[], bool | Awaitable[bool]]) -> bool:
    value = condition()
    return await value if isinstance(value, Awaitable) else value


def _message(
    condition: Callable[[], object], what: str | Callable[[], object], limit_s: float
) -> str:
    return f"not within {limit_s:g} s: {_described(condition, what)}"


def _described(condition: Callable[..., object], what: str | Callable[[], object]) -> object:
    """Return `what`, or the source of the condition."""
    if callable(what):
        return what()
    if what:
        return what
    try:
        return " ".join(inspect.getsource(condition).split())
    except (OSError, TypeError):
        return repr(condition)
