"""Parked fetches, when something happens to their partitions."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from spindle.protocol.messages.fetch import FetchRequest
from spindle.replication.fetch_session import FetchedPartition, FetchSession, PartitionKey
from spindle.serving.fetch.fetch_memory import FetchMemory
from spindle.serving.fetch.fetch_states import FetchState, ReadState
from spindle.serving.fetch.partition_read import PartitionRead
from spindle.serving.handlers.fetch import _Fetch

FetchRow = FetchRequest.FetchTopic.FetchPartition


def session_of_two_partitions() -> FetchSession:
    session = FetchSession(1, True, 0, is_replica=True)
    session.serves_consumers = True
    for number in (0, 1):
        key = PartitionKey("", b"t" * 16, number)
        row = FetchRow(partition=number, partition_max_bytes=1000)
        session.partitions[key] = known = FetchedPartition(session, key, row)
        known.topic = "t"
    session.mark_all_changed(0)
    return session


def test_a_look_that_moves_a_high_watermark_begins_one_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A follower's fetch that was ahead of the metadata acknowledges records when it is looked at.

    The session then tells the same fetch, as consumers wait for the high watermark (KIP-392).
    """
    is_ahead, jobs, waiting = [True], list[Any](), list[Callable[[], None]]()
    executor = SimpleNamespace(call=lambda *job: jobs.append(job))
    partition = SimpleNamespace(
        current_append_bytes=lambda start, end: None,
        directory=SimpleNamespace(executor=executor),
        log=None,
    )

    def prepare(self: Any, services: Any, fetcher: Any) -> None:
        self.state, self.partition = ReadState.AHEAD, None
        if not is_ahead[0]:
            self.state, self.partition, self.end_offset = ReadState.READABLE, partition, 5
            if self.wanted.is_progress_new:
                self.wanted.is_progress_new = False
                self.wanted.committed()

    monkeypatch.setattr(PartitionRead, "prepare", prepare)
    memory = FetchMemory(10_000)
    services: Any = SimpleNamespace(
        replica_memory=memory,
        loop=SimpleNamespace(call_later=lambda *_: None),
        metadata=SimpleNamespace(when_applied=waiting.append),
        quotas=SimpleNamespace(is_active=False),
    )
    context: Any = SimpleNamespace(api_version=17, socket_owner=None)
    fetched: Any = SimpleNamespace(session=session_of_two_partitions())
    follower: Any = SimpleNamespace(is_replica=True, is_committed=False)
    request = FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=10_000)
    fetch = _Fetch(services, context, request, fetched, follower)
    fetch.start()
    states = [fetch.state]
    is_ahead[0] = False
    waiting[0]()
    states.append(fetch.state)
    assert states == [FetchState.PARKED, FetchState.READING]
    assert len(jobs) == 1
    assert memory.granted_bytes == 2000
