"""The memory that fetches read into."""

from spindle.serving.fetch_memory import SMALL_FETCH_BYTES, FetchMemory


def test_one_fetch_has_a_limit() -> None:
    memory = FetchMemory(5_000_000)
    assert memory.grant(2**31 - 1) == 5_000_000
    assert memory.grant(100) == 100


def test_when_much_is_granted_the_next_ones_get_little_until_it_is_given_back() -> None:
    memory = FetchMemory(5_000_000, together_bytes=9_000_000)
    first = memory.grant(5_000_000)
    assert memory.grant(5_000_000) == SMALL_FETCH_BYTES
    assert memory.grant(10) == 10
    memory.give_back(first)
    assert memory.grant(5_000_000) == 5_000_000
