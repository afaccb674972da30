"""Incremental fetch sessions (KIP-227)."""

import pytest

from spindle.common.errors import ErrorCode
from spindle.protocol.messages.fetch import FetchRequest
from spindle.replication.fetch_session import (
    FULL_LOOK_MS,
    FetchContext,
    FetchedPartition,
    FetchSessionCache,
    PartitionKey,
    SessionError,
)

NAMES, IDS = 12, 13


class Cache(FetchSessionCache):
    def __init__(self, slots: int = 10, max_partitions: int = 1_000) -> None:
        self._counter = 100

        def next_id() -> int:
            self._counter += 1
            return self._counter

        super().__init__(slots, next_id, max_partitions=max_partitions)


def request(
    session_id: int = 0,
    epoch: int = 0,
    wanted: dict[str, list[int]] | None = None,
    forgotten: dict[str, list[int]] | None = None,
    offset: int = 0,
) -> FetchRequest:
    return FetchRequest(
        session_id=session_id,
        session_epoch=epoch,
        topics=[
            FetchRequest.FetchTopic(
                topic=topic,
                partitions=[
                    FetchRequest.FetchTopic.FetchPartition(partition=p, fetch_offset=offset)
                    for p in partitions
                ],
            )
            for topic, partitions in (wanted or {}).items()
        ],
        forgotten_topics_data=[
            FetchRequest.ForgottenTopic(topic=topic, partitions=partitions)
            for topic, partitions in (forgotten or {}).items()
        ],
    )


def partitions(context: FetchContext) -> list[tuple[str, int]]:
    return [(key.topic, key.partition) for key in context.partitions]


def refused(cache: Cache, asked: FetchRequest, version: int = NAMES) -> ErrorCode:
    with pytest.raises(SessionError) as caught:
        cache.open(asked, version, 0)
    return caught.value.code


def test_a_fetch_with_epoch_minus_1_gets_no_session() -> None:
    cache = Cache()
    context = cache.open(request(epoch=-1, wanted={"a": [0]}), NAMES, 0)
    assert context.session_id == 0
    assert context.session_id == 0
    assert len(cache) == 0


def test_an_incremental_request_names_only_changes() -> None:
    cache = Cache()
    session_id = cache.open(request(wanted={"a": [0, 1], "b": [0]}), NAMES, 0).session_id
    assert session_id == 101
    context = cache.open(request(session_id, 1, wanted={"c": [5]}, forgotten={"a": [1]}), NAMES, 0)
    assert context.is_incremental
    assert partitions(context) == [("a", 0), ("b", 0), ("c", 5)]
    context = cache.open(request(session_id, 2, wanted={"b": [0]}, offset=7), NAMES, 0)
    assert context.partitions[PartitionKey("b", bytes(16), 0)].fetch_offset == 7


def test_a_refused_request_neither_ends_nor_advances_the_session() -> None:
    cache = Cache()
    session_id = cache.open(request(wanted={"a": [0]}), NAMES, 0).session_id
    assert refused(cache, request(999, 1)) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert refused(cache, request(session_id, 5)) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert refused(cache, request(session_id, 1), IDS) is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    # None of them ends or advances the session.
    assert cache.open(request(session_id, 1), NAMES, 0).session_id == session_id


def test_a_session_without_partitions_ends() -> None:
    cache = Cache()
    session_id = cache.open(request(wanted={"a": [0]}), NAMES, 0).session_id
    context = cache.open(request(session_id, 1, forgotten={"a": [0]}), NAMES, 0)
    assert (context.session_id, context.is_incremental, len(cache)) == (0, False, 0)
    assert refused(cache, request(session_id, 2)) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_full_request_replaces_the_session_it_names() -> None:
    cache = Cache()
    first = cache.open(request(wanted={"a": [0]}), NAMES, 0).session_id
    second = cache.open(request(first, 0, wanted={"b": [0]}), NAMES, 0).session_id
    assert second != first
    assert len(cache) == 1


def test_a_closing_request_ends_the_session() -> None:
    cache = Cache()
    session_id = cache.open(request(wanted={"a": [0]}), NAMES, 0).session_id
    context = cache.open(request(session_id, -1, wanted={"a": [0]}), NAMES, 0)
    assert context.session_id == 0
    assert len(cache) == 0


def test_a_full_cache_serves_without_a_session_until_one_is_idle() -> None:
    cache = Cache(slots=1)
    old = cache.open(request(wanted={"a": [0]}), NAMES, 0).session_id
    assert cache.open(request(wanted={"b": [0]}), NAMES, 1_000).session_id == 0
    new = cache.open(request(wanted={"b": [0]}), NAMES, 121_000).session_id
    assert new not in (0, old)
    assert refused(cache, request(old, 1)) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_sends_only_changes() -> None:
    cache = Cache()
    context = cache.open(request(wanted={"a": [0]}), NAMES, 0)
    partition = context.partitions[PartitionKey("a", bytes(16), 0)]
    assert partition.is_news(5, 0)
    partition.remember(5, 0)
    assert not partition.is_news(5, 0)
    assert partition.is_news(5, 1)
    assert partition.is_news(4, 0)


def test_the_session_epoch_continues_at_1_after_the_maximum() -> None:
    cache = Cache()
    context = cache.open(request(wanted={"a": [0]}), NAMES, 0)
    assert context.session_id != 0
    context.session.epoch = 2**31 - 1
    cache.open(request(context.session_id, 2**31 - 1), NAMES, 0)
    assert context.session.epoch == 1


def test_all_sessions_together_remember_a_limited_number_of_partitions() -> None:
    cache = Cache(max_partitions=5)
    first = cache.open(request(wanted={"a": [0, 1, 2]}), NAMES, 0)
    assert first.session_id != 0
    assert cache.open(request(wanted={"b": [0, 1, 2]}), NAMES, 0).session_id == 0
    second = cache.open(request(wanted={"b": [0, 1]}), NAMES, 0)
    assert second.session_id != 0
    # A session that grows beyond the limit is closed; one that shrinks makes room.
    grown = request(second.session_id, 1, wanted={"b": [2]})
    assert refused(cache, grown) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(cache) == 1
    cache.open(request(first.session_id, 1, forgotten={"a": [0, 1]}), NAMES, 0)
    assert cache.open(request(wanted={"c": [0, 1, 2, 3]}), NAMES, 0).session_id != 0


def test_idle_sessions_make_room_for_partitions() -> None:
    cache = Cache(max_partitions=5)
    cache.open(request(wanted={"a": [0, 1]}), NAMES, 0)
    cache.open(request(wanted={"b": [0, 1]}), NAMES, 60_000)
    assert cache.open(request(wanted={"c": [0, 1, 2]}), NAMES, 119_999).session_id == 0
    assert cache.open(request(wanted={"c": [0, 1, 2]}), NAMES, 120_000).session_id != 0
    assert len(cache) == 2
    assert cache.open(request(wanted={"c": list(range(6))}), NAMES, 500_000).session_id == 0
    assert len(cache) == 2


class Partition:
    """A partition that remembers its watchers."""

    def __init__(self) -> None:
        self.watchers: dict[FetchedPartition, bool] = {}

    def watch(self, watcher: FetchedPartition, *, appends: bool) -> None:
        self.watchers[watcher] = appends

    def unwatch(self, watcher: FetchedPartition) -> None:
        del self.watchers[watcher]


def looked_at(context: FetchContext) -> list[tuple[str, int]]:
    return [(p.key.topic, p.key.partition) for p in context.session.take_dirty()]


def partition_of(context: FetchContext, topic: str, index: int) -> FetchedPartition:
    return context.partitions[PartitionKey(topic, bytes(16), index)]


def test_only_what_is_named_or_has_changed_is_looked_at() -> None:
    cache = Cache()
    first = cache.open(request(wanted={"a": [0, 1, 2]}), NAMES, 0)
    assert looked_at(first) == [("a", 0), ("a", 1), ("a", 2)]
    partition_of(first, "a", 2).committed()
    second = cache.open(request(first.session_id, 1, wanted={"a": [1]}), NAMES, 0)
    assert looked_at(second) == [("a", 2), ("a", 1)]
    assert looked_at(cache.open(request(first.session_id, 2), NAMES, 0)) == []


def test_now_and_then_everything_is_looked_at() -> None:
    cache = Cache()
    first = cache.open(request(wanted={"a": [0, 1]}), NAMES, 0)
    looked_at(first)
    assert looked_at(cache.open(request(first.session_id, 1), NAMES, FULL_LOOK_MS - 1)) == []
    again = cache.open(request(first.session_id, 2), NAMES, FULL_LOOK_MS)
    assert looked_at(again) == [("a", 0), ("a", 1)]


def test_a_session_watches_until_it_ends() -> None:
    cache, watched, other = Cache(), Partition(), Partition()
    context = cache.open(request(wanted={"a": [0]}), NAMES, 0)
    fetched = partition_of(context, "a", 0)
    fetched.attach(watched)
    fetched.attach(other)
    assert (list(watched.watchers), list(other.watchers)) == ([], [fetched])
    cache.forget(context.session)
    assert not other.watchers
    fetched.attach(watched)
    assert not watched.watchers


def test_a_forgotten_partition_is_watched_no_more() -> None:
    cache, watched = Cache(), Partition()
    context = cache.open(request(wanted={"a": [0]}), NAMES, 0)
    partition_of(context, "a", 0).attach(watched)
    context = cache.open(request(context.session_id, 1, forgotten={"a": [0]}), NAMES, 0)
    assert not watched.watchers
    assert looked_at(context) == []


def test_only_appends_wake_a_waiting_follower_fetch() -> None:
    context = Cache().open(request(wanted={"a": [0]}), NAMES, 0, is_replica=True)
    fetched = partition_of(context, "a", 0)
    looked_at(context)
    woken: list[str] = []
    context.session.on_dirty = lambda: woken.append("woken")
    fetched.committed()
    assert (woken, looked_at(context)) == ([], [("a", 0)])
    fetched.log_moved()
    fetched.changed()
    context.session.serves_consumers = True
    fetched.committed()
    assert len(woken) == 3


def test_followers_begin_new_sessions_and_consumers_do_not() -> None:
    cache = Cache()
    consumer = cache.open(request(wanted={"a": [0]}), NAMES, 0).session_id
    follower = cache.open(request(wanted={"a": [0]}), NAMES, 0, is_replica=True)
    cache.close_replica_sessions()
    was_closed = follower.session.is_closed
    assert refused(cache, request(follower.session_id, 1)) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (was_closed, follower.session.is_closed) == (False, True)
    assert cache.open(request(consumer, 1), NAMES, 0).is_incremental
    again = cache.open(request(wanted={"a": [0]}), NAMES, 0, is_replica=True).session_id
    assert cache.open(request(again, 1), NAMES, 0, is_replica=True).is_incremental


def test_a_follower_takes_the_place_of_a_consumer() -> None:
    cache = Cache(slots=2)
    consumers = [cache.open(request(wanted={"a": [0]}), NAMES, 0).session_id for _ in range(2)]
    follower = cache.open(request(wanted={"a": [0]}), NAMES, 1, is_replica=True).session_id
    assert follower != 0
    assert refused(cache, request(consumers[0], 1)) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert cache.open(request(wanted={"a": [0]}), NAMES, 2).session_id == 0
    another = cache.open(request(wanted={"a": [0]}), NAMES, 3, is_replica=True).session_id
    assert another != 0
    assert cache.open(request(wanted={"a": [0]}), NAMES, 4, is_replica=True).session_id == 0
