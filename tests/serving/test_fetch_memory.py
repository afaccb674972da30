"""The memory that fetches read into."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from spindle.serving.fetch.fetch_memory import SMALL_FETCH_BYTES, FetchMemory, FetchShare

MIN_BYTES = 1_000


class Unsent:
    def __init__(self) -> None:
        self.total_bytes = 0
        self.on_decrease: Callable[[], None] = lambda: None
        self.endable_bytes = 0

    def make_room(self) -> None:
        self.take(self.endable_bytes)

    def take(self, count: int) -> None:
        self.total_bytes -= count
        self.on_decrease()


def memory_of(unsent: Unsent | None = None) -> FetchMemory:
    return FetchMemory(50_000, together_bytes=100_000, unsent=unsent or Unsent())


def test_one_fetch_has_a_limit() -> None:
    memory = FetchMemory(5_000_000)
    assert memory.grant(2**31 - 1) == 5_000_000
    assert memory.grant(100) == 100
    assert memory_of().ask(2**31 - 1, MIN_BYTES, is_prompt=False) == 50_000


def test_followers_get_little_memory_while_much_is_in_use() -> None:
    memory = FetchMemory(5_000_000, together_bytes=9_000_000)
    first = memory.grant(5_000_000)
    assert memory.grant(5_000_000) == SMALL_FETCH_BYTES
    assert memory.grant(10) == 10
    memory.give_back(first)
    assert memory.grant(5_000_000) == 5_000_000


def test_consumers_get_all_then_a_batch_then_nothing_until_there_is_room() -> None:
    memory = memory_of()
    assert memory.ask(50_000, MIN_BYTES, is_prompt=False) == 50_000
    assert [memory.ask(50_000, MIN_BYTES, is_prompt=False) for _ in range(26)] == [
        MIN_BYTES
    ] * 25 + [0]
    woken: list[str] = []
    memory.wait(lambda: woken.append("first"), MIN_BYTES, is_prompt=False)
    memory.wait(lambda: woken.append("second"), MIN_BYTES, is_prompt=False)
    memory.give_back(MIN_BYTES)
    assert woken == ["first"]
    memory.give_back(50_000)
    assert woken == ["first", "second"]


def test_a_small_fetch_may_still_get_a_large_batch() -> None:
    assert memory_of().ask(10, 20_000, is_prompt=False) == 20_000
    assert memory_of().ask(10, 80_000, is_prompt=False) == 25_000


def test_clients_that_take_nothing_leave_a_quarter_for_the_others() -> None:
    unsent = Unsent()
    memory = memory_of(unsent)
    unsent.total_bytes = 75_000
    assert memory.ask(50_000, MIN_BYTES, is_prompt=False) == 0
    assert memory.ask(50_000, MIN_BYTES, is_prompt=True) == MIN_BYTES
    woken: list[str] = []
    unsent.total_bytes = 100_000
    memory.wait(lambda: woken.append("deaf"), MIN_BYTES, is_prompt=False)
    memory.wait(lambda: woken.append("prompt"), MIN_BYTES, is_prompt=True)
    unsent.take(10_000)
    assert woken == ["prompt"]


def test_clients_that_have_taken_nothing_for_long_make_room() -> None:
    unsent = Unsent()
    memory = memory_of(unsent)
    unsent.total_bytes = unsent.endable_bytes = 100_000
    assert memory.ask(50_000, MIN_BYTES, is_prompt=False) == MIN_BYTES


def test_records_sent_from_a_file_need_no_memory() -> None:
    unsent = Unsent()
    unsent.total_bytes = 100_000
    memory = memory_of(unsent)
    woken: list[str] = []
    owner: Any = SimpleNamespace(may_send_directly=True)
    share = FetchShare(memory, owner)

    def wake() -> None:
        woken.append("woken")

    share.ask(40_000, MIN_BYTES)
    assert (share.is_refused, share.room) == (True, 40_000)
    share.wait(wake)
    share.forget(wake)
    unsent.take(100_000)
    assert not woken
    share.ask(40_000, MIN_BYTES)
    assert not share.is_refused
    share.give_back()
    assert memory.granted_bytes == 0
