"""Large requests take turns."""

import asyncio
import threading

from spindle.runtime.network.large_requests import LargeRequests, max_elements


async def test_few_bytes_are_worked_on_together_and_the_rest_in_order() -> None:
    large = LargeRequests(together_bytes=100)
    started: list[str] = []
    ends = {name: asyncio.Event() for name in "abcd"}

    async def work(name: str, size_bytes: int) -> None:
        async with large.turn(size_bytes):
            started.append(name)
            await ends[name].wait()

    sizes = {"a": 60, "b": 40, "c": 500, "d": 10}
    tasks = {name: asyncio.ensure_future(work(name, size)) for name, size in sizes.items()}
    await asyncio.sleep(0)
    assert started == ["a", "b"]
    ends["a"].set()
    await tasks["a"]
    assert started == ["a", "b"], "c is alone, and d does not overtake it"
    ends["b"].set()
    await tasks["b"]
    await asyncio.sleep(0)
    assert started == ["a", "b", "c"]
    ends["c"].set()
    ends["d"].set()
    await asyncio.gather(*tasks.values())
    assert started == ["a", "b", "c", "d"]


async def test_a_cancelled_waiter_is_skipped() -> None:
    large = LargeRequests(together_bytes=100)
    async with large.turn(100):
        waiting = asyncio.ensure_future(_take(large, 100))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    await asyncio.wait_for(_take(large, 100), 5)


async def _take(large: LargeRequests, size_bytes: int) -> None:
    async with large.turn(size_bytes):
        pass


async def test_reading_and_writing_run_on_a_thread_of_their_own() -> None:
    large = LargeRequests()
    assert await large.on_thread(threading.get_ident) != threading.get_ident()
    large.close()


def test_costly_requests_may_have_fewer_elements() -> None:
    metadata, create_topics, offset_commit = 3, 19, 8
    # 56: a broker may propose ISRs for more than 100,000 partitions, each with several members.
    assert [max_elements(key) for key in (metadata, 56, create_topics, offset_commit)] == [
        1_000_000,
        1_000_000,
        100_000,
        30_000,
    ]
