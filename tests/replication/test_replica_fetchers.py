"""The driver of followers: leaders made by hand, logs in memory, file work done at once."""

import asyncio
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from replica_pair import NOW_MS, TOPIC_ID, Leader, append, commit, content, new_log
from waiting import until

from spindle.common.errors import CorruptLog, ErrorCode, LogDirectoryFailed
from spindle.common.ids import Endpoint
from spindle.common.promise import Promise
from spindle.config.node_config import NodeConfig
from spindle.disks.directory_store import DirectoryStore
from spindle.disks.log_directory import LogDirectory
from spindle.log.log import Log
from spindle.protocol.message import Message
from spindle.protocol.messages.fetch import FetchRequest
from spindle.raft.ready import Destination
from spindle.replicas.partition import Partition, ReplicationContext
from spindle.replicas.ports import FetchStart
from spindle.replication.follower_log import begin_to_follow
from spindle.runtime.broker.replica_fetchers import ReplicaFetchers
from spindle.runtime.peers.port import PeerUnavailable
from spindle.runtime.task_promise import promise_of
from spindle.serving.quotas.replication import ReplicationQuotas
from spindle.testing.filesystem import MemoryFileSystem

BROKER_ID, LEADER_ID = 2, 1
PROPERTIES = {
    "process.roles": "broker",
    "node.id": str(BROKER_ID),
    "controller.quorum.voters": "9@127.0.0.1:65000",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "log.dirs": "/data",
    "replica.fetch.backoff.ms": "1",
}


class Watcher:
    """Calls back when it is told of a commit."""

    def __init__(self, on_commit: Callable[[], None]) -> None:
        self.committed = on_commit

    def log_moved(self) -> None:
        raise AssertionError("a follower's log is no leader's")

    def changed(self) -> None: ...


class DoneAtOnce:
    """A directory executor that does its work at once."""

    def __init__(self) -> None:
        self.failure: LogDirectoryFailed | None = None
        self.log: list[str] = []

    def call(self, callback: Callable[..., None], function: Callable[..., Any], *args: Any) -> None:
        loop = asyncio.get_running_loop()
        self.log.append(function.__name__)
        if self.failure is None:
            try:
                loop.call_soon(callback, function(*args), None)
                return
            except (OSError, CorruptLog) as error:
                self.failure = LogDirectoryFailed("/data", error)
        loop.call_soon(callback, None, self.failure)


class Wire:
    """The way to a leader made by hand, which keeps a fetch until there is `news`."""

    def __init__(self, leader: Leader) -> None:
        self.leader = leader
        self.news = asyncio.Event()
        self.is_cut = False
        self.closed: list[str] = []
        self.asked: list[tuple[str, Destination]] = []
        self.waiting = 0

    def peers(self, client_id: str, timeout_s: float) -> "Line":
        assert timeout_s == 30
        return Line(self, client_id)


class Line:
    def __init__(self, wire: Wire, client_id: str) -> None:
        self._wire = wire
        self._client_id = client_id

    def request(self, destination: Destination, message: Message) -> Promise[Message]:
        return promise_of(self._request(destination, message))

    async def _request(self, destination: Destination, message: Message) -> Message:
        wire = self._wire
        wire.asked.append((self._client_id, destination))
        if wire.is_cut:
            raise PeerUnavailable("the wire is cut")
        answer: Any = wire.leader.answer(message)
        if isinstance(message, FetchRequest) and not answer.responses and not answer.error_code:
            news = wire.news
            wire.waiting += 1
            try:
                await news.wait()
            finally:
                wire.waiting -= news is wire.news
        assert isinstance(answer, Message)
        return answer

    def close(self) -> None:
        self._wire.closed.append(self._client_id)


class Broker:
    """A broker with one replica for each log, as far as `ReplicaFetchers` uses it."""

    def __init__(self, *logs: Log, **overrides: str) -> None:
        settings = {name.replace("_", "."): value for name, value in overrides.items()}
        config = NodeConfig.from_properties(PROPERTIES | settings)
        self.leader = Leader(*(new_log(log.topic_partition.partition) for log in logs))
        self.wire = Wire(self.leader)
        self.clock_ms = 0
        self.endpoint: Endpoint | None = Endpoint("PLAINTEXT", "leader", 9092)
        self.quotas = ReplicationQuotas(config, lambda: self.clock_ms)
        self.fetchers = ReplicaFetchers(
            config,
            self.quotas.follower,
            lambda _: self.endpoint,
            self.wire.peers,
            lambda: 77,
            lambda: NOW_MS,
        )
        image: Any = SimpleNamespace()
        context = ReplicationContext(BROKER_ID, image, lambda: 0, 0, lambda *_: None)
        self.disks = [DoneAtOnce(), DoneAtOnce()]
        self.partitions = []
        files = MemoryFileSystem()
        files.make_directories("/data")
        store = DirectoryStore(files, "/data")
        executors: list[Any] = [*self.disks]
        directories = [LogDirectory("/data", bytes(16), disk, store) for disk in executors]
        for number, log in enumerate(logs):
            where = log.topic_partition
            partition = Partition(where, TOPIC_ID, log, directories[number % 2], context)
            partition.leader_id, partition.leader_epoch = LEADER_ID, 0
            self.partitions.append(partition)

    def follow(self, *partitions: Partition) -> None:
        self.fetchers.follow(
            [FetchStart(p, begin_to_follow(p.log, NOW_MS)) for p in partitions or self.partitions]
        )

    async def caught_up(self) -> None:
        """Return when all fetchers wait at the leader and have appended everything."""
        logs = [(p.log, self.leader.logs[p.topic_partition.partition]) for p in self.partitions]
        await until(
            lambda: (
                self.wire.waiting == len(list(self.fetchers))
                and all(log.log_end_offset == its.log_end_offset for log, its in logs)
            )
        )

    async def wake(self) -> None:
        """Let the leader answer: there is something new."""
        news, self.wire.news = self.wire.news, asyncio.Event()
        self.wire.waiting = 0
        news.set()
        await asyncio.sleep(0)


async def test_arriving_records_wake_those_that_wait_for_them() -> None:
    broker = Broker(new_log(0), new_log(1), new_log(2))
    told: list[int] = []
    watcher = Watcher(lambda: told.append(broker.partitions[0].log.log_end_offset))
    broker.partitions[0].watch(watcher, appends=False)
    broker.follow()
    await broker.caught_up()
    for log in broker.leader.logs.values():
        append(log, 0, "a", "b")
    await broker.wake()
    await broker.caught_up()
    assert told[0] == 2
    for partition in broker.partitions:
        its = broker.leader.logs[partition.topic_partition.partition]
        assert content(partition.log) == content(its)
    assert broker.leader.requests[0].replica_state.replica_epoch == 77
    assert [task.requests for task in broker.fetchers] == [len(broker.wire.asked)]
    assert broker.wire.asked[0] == ("broker-2-fetcher-0", Destination(1, "leader", 9092))
    broker.fetchers.stop_all()
    assert broker.wire.closed == ["broker-2-fetcher-0"]


async def test_all_that_one_answer_brings_takes_one_hop_for_each_directory() -> None:
    broker = Broker(*(new_log(number) for number in range(5)))
    for log in broker.leader.logs.values():
        append(log, 0, "a")
    broker.follow()
    await broker.caught_up()
    assert [disk.log for disk in broker.disks] == [
        ["apply_leader_answers"],
        ["apply_leader_answers"],
    ]
    broker.fetchers.stop_all()


async def test_a_leader_that_is_away_is_asked_until_it_is_back() -> None:
    broker = Broker(new_log())
    append(broker.leader.logs[0], 0, "a")
    broker.wire.is_cut, broker.endpoint = True, None
    broker.follow()
    await asyncio.sleep(0.003)
    assert broker.wire.asked == []
    broker.endpoint = Endpoint("PLAINTEXT", "elsewhere", 9093)
    await until(lambda: len(broker.wire.asked) > 2, pause_s=0)
    broker.wire.is_cut = False
    await broker.caught_up()
    assert {port for _, (_, _, port) in broker.wire.asked} == {9093}
    broker.fetchers.stop_all()


async def test_a_session_that_the_leader_has_closed_is_replaced_at_once() -> None:
    broker = Broker(new_log(), replica_fetch_backoff_ms="60000")
    broker.follow()
    await broker.caught_up()
    for session in list(broker.leader.sessions.sessions.values()):
        broker.leader.sessions.forget(session)
    append(broker.leader.logs[0], 0, "a")
    await broker.wake()
    await broker.caught_up()
    assert [request.session_epoch for request in broker.leader.requests[-3:]] == [2, 0, 1]
    broker.fetchers.stop_all()


async def test_a_leader_that_refuses_every_session_is_not_asked_without_pause() -> None:
    broker = Broker(new_log(), replica_fetch_backoff_ms="60000")
    broker.leader.refusal = ErrorCode.INVALID_FETCH_SESSION_EPOCH
    broker.follow()
    await until(lambda: len(broker.wire.asked) == 1, pause_s=0)
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(broker.wire.asked) == 1
    broker.fetchers.stop_all()


async def test_a_stopped_fetcher_does_not_change_its_partitions() -> None:
    broker = Broker(new_log(0), new_log(1))
    broker.follow()
    await broker.caught_up()
    for log in broker.leader.logs.values():
        append(log, 0, "a")
    broker.fetchers.stop([broker.partitions[0]])
    await broker.wake()
    await until(lambda: broker.partitions[1].log.log_end_offset == 1, pause_s=0)
    assert broker.partitions[0].log.log_end_offset == 0
    broker.fetchers.stop(broker.partitions)
    assert list(broker.fetchers) == []
    await until(lambda: len(broker.wire.closed) == 1, pause_s=0)


async def test_a_dead_directory_stops_its_replicas_alone(caplog: pytest.LogCaptureFixture) -> None:
    """The log says so once for the directory, elsewhere, and not for every replica."""

    broker = Broker(new_log(0), new_log(1))
    broker.follow()
    await broker.caught_up()
    broker.disks[0].failure = LogDirectoryFailed("/data", "gone")
    for log in broker.leader.logs.values():
        append(log, 0, "a")
    await broker.wake()
    await until(lambda: broker.partitions[1].log.log_end_offset == 1, pause_s=0)
    (rounds,) = broker.fetchers
    await until(lambda: [key.partition for key in rounds.fetcher.failed] == [0], pause_s=0)
    assert [followed.key.partition for followed in rounds.fetcher] == [1]
    broker.fetchers.stop_all()
    assert not caplog.records


async def test_an_unexpected_error_is_logged_and_the_fetcher_continues(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    complaints: list[str] = []

    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: complaints.append(str(context["exception"])))
    broker = Broker(new_log(0), new_log(1))
    broker.follow()
    await broker.caught_up()
    (rounds,) = broker.fetchers
    for method in ("on_done", "on_response", "next_request"):
        original = getattr(rounds.fetcher, method)

        def fail_once(*args: Any, method: str = method, original: Any = original) -> Any:
            monkeypatch.setattr(rounds.fetcher, method, original)
            raise KeyError(method)

        monkeypatch.setattr(rounds.fetcher, method, fail_once)
        for log in broker.leader.logs.values():
            append(log, 0, method)
        await broker.wake()
        await until(partial(complaints.__contains__, repr(method)))
        await broker.caught_up()
    assert [content(p.log) for p in broker.partitions] == [
        content(log) for log in broker.leader.logs.values()
    ]
    broker.fetchers.stop_all()
    assert complaints == ["'on_done'", "'on_response'", "'next_request'"]


async def test_the_leaders_offsets_are_asked_for_when_the_log_starts_above() -> None:
    broker = Broker(new_log())
    log = broker.leader.logs[0]
    for value in "abc":
        append(log, 0, value)
    log.update_high_watermark(3)
    log.increment_log_start_offset(2)
    broker.follow()
    await broker.caught_up()
    assert broker.partitions[0].log.log_start_offset == 2
    broker.fetchers.stop_all()


async def test_another_number_of_fetchers_spreads_the_replicas_again() -> None:
    broker = Broker(*(new_log(number) for number in range(4)))
    broker.follow()
    await broker.caught_up()
    broker.fetchers.resize(2)
    for log in broker.leader.logs.values():
        append(log, 0, "a")
    await broker.wake()
    await broker.caught_up()
    assert [len(task.fetcher) for task in broker.fetchers] == [2, 2]
    broker.fetchers.resize(1)
    for log in broker.leader.logs.values():
        append(log, 0, "b")
    await broker.wake()
    await broker.caught_up()
    assert [len(task.fetcher) for task in broker.fetchers] == [4]
    broker.fetchers.stop_all()


async def test_a_throttled_replica_waits_while_the_quota_is_exceeded() -> None:
    broker = Broker(new_log(), replication_quota_window_num="2")
    broker.quotas.follower.limit_bytes_per_s = 10
    partition = broker.partitions[0]
    partition.is_throttled_as_follower = True
    for number in range(30):
        append(broker.leader.logs[0], 0, f"{number} " * 20)
    commit(broker.leader.logs[0])
    broker.follow()
    await until(lambda: partition.log.log_end_offset > 0, pause_s=0)
    for _ in range(50):
        await asyncio.sleep(0)
    asked = len(broker.leader.requests)
    assert 0 < partition.log.log_end_offset < 30
    await asyncio.sleep(0.01)  # ten times the pause between two looks at the quota
    assert len(broker.leader.requests) == asked
    broker.clock_ms += 10_000  # what was recorded does not count any more
    await until(lambda: len(broker.leader.requests) > asked, pause_s=0)
    partition.is_throttled_as_follower = False
    broker.fetchers.throttle(partition)
    await broker.caught_up()
    broker.fetchers.stop_all()


async def test_a_replica_that_is_fetched_again_in_an_epoch_learns_its_lag_from_a_quiet_leader() -> (
    None
):
    broker = Broker(new_log(), new_log(1))  # the session goes on with the other replica
    append(broker.leader.logs[0], 0, "a")
    commit(broker.leader.logs[0])
    broker.follow()
    await broker.caught_up()
    partition = broker.partitions[0]
    broker.fetchers.stop([partition])
    assert broker.fetchers.lag(partition) == -1
    position = begin_to_follow(partition.log, NOW_MS)
    broker.fetchers.follow([FetchStart(partition, position, is_same_epoch=True)])
    await broker.wake()
    await until(lambda: broker.fetchers.lag(partition) == 0, pause_s=0)
    broker.fetchers.stop_all()
