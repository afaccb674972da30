"""The queue of deadlines, compared with a plain dict."""

from hypothesis import given
from hypothesis import strategies as st

from spindle.coordinator.coordinator_result import TimerChange, TimerKey
from spindle.coordinator.timers import TimerQueue

KEYS = [
    TimerKey("join", "g"),
    TimerKey("sync", "g"),
    TimerKey("heartbeat", "g", "m"),
    TimerKey("heartbeat", "g", "n"),
    TimerKey("expiration"),
]


def test_timers_of_one_group_are_different_timers() -> None:
    queue: TimerQueue[TimerKey] = TimerQueue()
    for at_ms, key in enumerate(KEYS):
        queue.apply(TimerChange(key, at_ms))
    assert len(queue) == len(KEYS)
    assert [queue.pop_due(10) for _ in KEYS] == KEYS
    assert queue.pop_due(10) is None


@given(
    st.lists(
        st.one_of(
            st.tuples(st.sampled_from(KEYS), st.none() | st.integers(0, 40)),
            st.integers(0, 10),
        ),
        max_size=60,
    )
)
def test_each_timer_fires_once_at_its_last_deadline(
    steps: list[tuple[TimerKey, int | None] | int],
) -> None:
    queue: TimerQueue[TimerKey] = TimerQueue()
    deadlines: dict[TimerKey, int] = {}
    now_ms = 0
    for step in steps:
        if isinstance(step, tuple):
            key, wait_ms = step
            at_ms = None if wait_ms is None else now_ms + wait_ms
            queue.apply(TimerChange(key, at_ms))
            deadlines.pop(key, None)
            if at_ms is not None:
                deadlines[key] = at_ms
        else:
            now_ms += step
            fired = []
            while (due := queue.pop_due(now_ms)) is not None:
                fired.append(due)
            expected = [key for key, at_ms in deadlines.items() if at_ms <= now_ms]
            assert sorted(fired) == sorted(expected)
            for key in expected:
                del deadlines[key]
        assert len(queue) == len(deadlines)
        assert all((key in queue) == (key in deadlines) for key in KEYS)
        next_ms = queue.next_ms()
        assert (next_ms is None) == (not deadlines)
        # The time may be too early, if a deadline was moved later, but never too late.
        assert next_ms is None or next_ms <= min(deadlines.values())
