"""Memory of large frames: used again, but never while anybody can still see its bytes."""

import asyncio
import threading
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from node_harness import (
    Home,
    batch_of,
    connected,
    partition_folders,
    produce_request,
    records_in,
    running,
)

from spindle.common.errors import ErrorCode
from spindle.protocol.codec import encode
from spindle.protocol.framing import request_prefix
from spindle.runtime.frame_buffers import FrameBuffers

MIB = 1024 * 1024


def test_a_buffer_is_lent_again_when_its_last_view_is_gone() -> None:
    buffers = FrameBuffers(8 * MIB)
    frame = buffers.take(MIB)
    memory = frame.obj
    records = frame[100:200][10:].cast("b").toreadonly()
    del frame
    assert buffers.take(MIB).obj is not memory
    del records
    assert buffers.take(MIB - 1000).obj is memory


def test_a_frame_never_gets_more_than_twice_its_size() -> None:
    buffers = FrameBuffers(8 * MIB)
    large = buffers.take(2 * MIB).obj
    small = buffers.take(100_000)
    assert small.obj is not large
    assert memoryview(small.obj).nbytes < 200_000
    assert len(small) == 100_000


def test_kept_buffers_are_bounded_whatever_was_lent() -> None:
    buffers = FrameBuffers(4 * MIB)
    held = [buffers.take(MIB) for _ in range(50)]
    assert buffers.size_bytes <= 4 * MIB
    del held
    for size in (10 * MIB, 70_000, MIB, 3 * MIB, 100):
        assert len(buffers.take(size)) == size
        assert buffers.size_bytes <= 4 * MIB


steps = st.tuples(st.integers(1, 3 * MIB), st.integers(0, 12))


@settings(deadline=None, max_examples=30)
@given(st.lists(steps, max_size=40))
def test_no_two_frames_that_are_in_use_share_memory(steps: Sequence[tuple[int, int]]) -> None:
    """Take frames, keep a part of each for as many steps as drawn, and look at all of them."""
    buffers = FrameBuffers(6 * MIB)
    held: list[tuple[int, bytes, memoryview]] = []
    for number, (size, steps_kept) in enumerate(steps):
        frame = buffers.take(size)
        content = bytes([number])
        frame[0:1] = frame[-1:] = content
        held.append((number + steps_kept, content, frame[:1]))
        held.append((number + steps_kept, content, frame[-1:]))
        held = [kept for kept in held if kept[0] > number]
        assert all(bytes(view) == content for _, content, view in held)


async def test_a_hanging_disk_keeps_the_records_of_requests_that_nobody_waits_for(
    tmp_path: Path,
) -> None:
    """A produce that timed out, and one whose connection is closed, are appended later all the
    same; meanwhile many requests go to another disk."""
    home = Home(tmp_path, directories=2).format()
    gate = threading.Event()
    timed_out, closed = b"t" * 300_000, b"c" * 300_000

    try:
        async with running(home) as node, connected(node) as client:
            await client.create_topic("t", partitions=2)
            assert node.broker is not None
            await node.broker.metadata.catch_up(5.0)
            folders = partition_folders(home)
            hung, alive = (int(folders["t-1"] == "disk2"), int(folders["t-0"] == "disk2"))
            partition = node.broker.replicas.lookup("t", hung)
            assert partition is not None
            stuck = asyncio.ensure_future(partition.directory.executor.submit(gate.wait))
            request = produce_request("t", hung, batch_of(timed_out))
            request.timeout_ms = 1
            answer = (await client.ask(request, 12)).responses[0].partition_responses[0]
            assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
            async with connected(node) as leaving:
                await leaving.ask(produce_request("t", alive, batch_of(b"x" * 300_000)), 12)
                request = produce_request("t", hung, batch_of(closed), acks=1)
                await leaving.send(request_prefix(0, 12, 1, "test") + encode(request, 12))
            for number in range(40):
                value = bytes([number]) * 300_000
                assert (await client.produce("t", alive, batch_of(value))).error_code == 0
            gate.set()
            await stuck
            assert (await client.produce("t", hung, batch_of(b"last"))).error_code == 0
            fetched = chain(
                records_in((await client.fetch("t", hung, 0)).records),
                records_in((await client.fetch("t", alive, 0)).records),
            )
            values = [record.value for record in fetched]
            assert values == [
                *(timed_out, closed, b"last", b"x" * 300_000),
                *(bytes([number]) * 300_000 for number in range(40)),
            ]
    finally:
        gate.set()
