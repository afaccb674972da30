"""Decoding beside the event loop: one batch at a time, and nothing of a refused one is kept."""

import asyncio
import gc
import weakref
from collections.abc import Iterator
from threading import Event, current_thread

import pytest

from spindle.common.errors import ApiError, CorruptRecords, ErrorCode
from spindle.replicas.record_decoding import RecordDecoding


@pytest.fixture
def without_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


class Unpacked:
    """The records of a batch, as a decoder holds them."""


async def test_one_function_runs_at_a_time_in_order_and_not_on_the_event_loop() -> None:
    done: list[int] = []
    may_end = Event()

    def decode(number: int) -> int:
        assert current_thread().name != "MainThread"
        if number == 0:
            may_end.wait()
        done.append(number)
        return number

    decoding = RecordDecoding()
    waiting = [asyncio.ensure_future(decoding.run("t", decode, number)) for number in range(3)]
    await asyncio.sleep(0)
    may_end.set()
    assert await asyncio.gather(*waiting) == [0, 1, 2]
    assert done == [0, 1, 2]


async def test_a_topic_with_many_batches_lets_the_batch_of_another_topic_go_before() -> None:
    done: list[str] = []

    decoding = RecordDecoding()
    topics = ["hostile"] * 3 + ["honest"]
    await asyncio.gather(*(decoding.run(topic, done.append, topic) for topic in topics))
    assert done == ["hostile", "hostile", "honest", "hostile"]


@pytest.mark.usefixtures("without_collector")
async def test_a_refusal_keeps_nothing_of_the_batch_alive() -> None:
    unpacked: list[weakref.ref[Unpacked]] = []

    def decode() -> None:
        records = Unpacked()
        unpacked.append(weakref.ref(records))
        try:
            raise CorruptRecords("garbage")
        except CorruptRecords as error:
            raise ApiError(ErrorCode.INVALID_RECORD) from error

    with pytest.raises(ApiError):
        await RecordDecoding().run("t", decode)
    assert unpacked[0]() is None


@pytest.mark.usefixtures("without_collector")
async def test_a_refusal_that_was_handled_is_freed_at_once() -> None:
    refusals: list[weakref.ref[ApiError]] = []

    def decode() -> None:
        raise ApiError(ErrorCode.INVALID_RECORD)

    async def ask() -> None:
        try:
            await RecordDecoding().run("t", decode)
        except ApiError as error:
            refusals.append(weakref.ref(error))

    await ask()
    await asyncio.sleep(0)
    assert refusals[0]() is None


async def test_an_unexpected_error_keeps_its_place_in_the_program() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        await RecordDecoding().run("t", lambda: 1 // 0)
    assert "1 // 0" in str(caught.traceback[-1].statement)
