"""The time limit of the test runner is no broken promise of the cluster."""

import signal
from collections.abc import Iterator

import pytest

from spindle.runtime.node import Node
from verification.simulation.loop import TimeLimitReached
from verification.simulation.run import simulate
from verification.simulation.scenario import draw


@pytest.fixture
def alarm() -> Iterator[None]:
    """Replace the time limit of the test runner by one that the test sends."""
    before = signal.getsignal(signal.SIGALRM)

    def fail(*_: object) -> None:
        pytest.fail("time limit of the test runner")

    signal.signal(signal.SIGALRM, fail)
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("alarm")
def test_a_time_limit_inside_a_node_ends_the_run_without_a_verdict(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = Node.start
    alarms = iter(range(1))

    async def start(node: Node) -> None:
        if next(alarms, None) is not None:
            signal.raise_signal(signal.SIGALRM)
        await original(node)

    monkeypatch.setattr(Node, "start", start)
    with pytest.raises(TimeLimitReached, match="not judged"):
        simulate(draw(1))
    assert next(alarms, None) is None


@pytest.mark.usefixtures("alarm")
def test_the_handler_of_the_alarm_is_put_back() -> None:
    before = signal.getsignal(signal.SIGALRM)
    simulate(draw(1))
    assert signal.getsignal(signal.SIGALRM) is before
