"""A wait that ends without its condition says which condition it was."""

import pytest
from waiting import until, wait_for, wait_until


def test_a_condition_that_stays_false_is_named_by_its_text_or_its_source() -> None:
    with pytest.raises(AssertionError, match=r"not within 0 s: the leader is elected"):
        wait_until(lambda: False, "the leader is elected", limit_s=0, pause_s=0)
    with pytest.raises(AssertionError, match=r"not within 0 s: \[1, 2\]"):
        wait_until(lambda: False, lambda: [1, 2], limit_s=0, pause_s=0)
    with pytest.raises(AssertionError, match=r"not within 0 s: .*lambda: 1 > 2"):
        wait_until(lambda: 1 > 2, limit_s=0, pause_s=0)


def test_the_first_expected_value_is_returned_and_the_last_unexpected_one_shown() -> None:
    values = iter([0, 1, 2, 3])
    assert wait_for(lambda: next(values), pause_s=0) == 1
    assert wait_for(lambda: next(values), lambda value: value > 2, pause_s=0) == 3
    with pytest.raises(AssertionError, match=r"not within 0 s: an even number: the last .* is 7"):
        wait_for(lambda: 7, lambda value: value % 2 == 0, "an even number", limit_s=0, pause_s=0)
    with pytest.raises(AssertionError, match=r"not within 0 s: .*lambda: 0.* value is 0"):
        wait_for(lambda: 0, limit_s=0, pause_s=0)


async def test_the_event_loop_runs_while_a_condition_is_false() -> None:
    checks = iter([False, False, True])
    await until(lambda: next(checks))

    async def is_true() -> bool:
        return True

    await until(is_true)
    with pytest.raises(AssertionError, match=r"not within 0 s: .*lambda: False"):
        await until(lambda: False, limit_s=0, pause_s=0)


async def test_a_timeout_of_the_condition_itself_is_passed_on() -> None:
    def fail() -> bool:
        raise TimeoutError("of the broker")

    with pytest.raises(TimeoutError, match="of the broker"):
        await until(fail)
