"""Runs the fetchers of this broker's followers, each with one task and one connection.

A fetcher has one request open at a time, and does what the answer asks for before the next one: its
fetch offset acknowledges everything before it. Partitions of one leader are spread over
`num.replica.fetchers` fetchers; a fetcher without partitions ends.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias, cast

from spindle.common.errors import CorruptRecords, LogDirectoryFailed
from spindle.common.ids import Endpoint
from spindle.config.node_config import NodeConfig
from spindle.disks.log_directory import LogDirectory
from spindle.log.errors import UnexpectedAppendOffset
from spindle.protocol.message import Message
from spindle.protocol.messages.fetch import FetchResponse
from spindle.protocol.messages.list_offsets import ListOffsetsResponse
from spindle.raft.ready import Destination
from spindle.replicas.follower_work import apply_leader_answers
from spindle.replicas.following import Following
from spindle.replicas.partition import Partition
from spindle.replication.fetch_session_handler import TopicIdPartition
from spindle.replication.fetcher import (
    EARLIEST,
    LATEST,
    Fetcher,
    FetcherSettings,
    FindLeaderOffsets,
    FollowedPartition,
    Step,
)
from spindle.replication.follower_log import Append, LogPosition, LogWork
from spindle.runtime import background
from spindle.runtime.peers.port import PeerLacksVersion, Peers, PeerUnavailable
from spindle.serving.quotas.replication import ReplicationQuota

log = logging.getLogger(__name__)

FetcherKey: TypeAlias = tuple[int, int]
"""Id of the leader and number of the fetcher."""


MakePeers: TypeAlias = Callable[[str, float], Peers]
"""Makes connections; takes the client id and how many seconds to wait for an answer."""


class ReplicaFetchers:
    """All fetchers of a broker.

    Args:
        quota: limits what throttled partitions fetch.
        endpoint_of: gives where a broker is reached; None while it is fenced.
        broker_epoch: gives the epoch of the present registration.
        now_ms: the wall clock, for times of files.
    """

    def __init__(
        self,
        config: NodeConfig,
        quota: ReplicationQuota,
        endpoint_of: Callable[[int], Endpoint | None],
        make_peers: MakePeers,
        broker_epoch: Callable[[], int],
        now_ms: Callable[[], int],
    ) -> None:
        integer = config.integer
        self.broker_id = config.node_id
        self.settings = FetcherSettings(
            replica_id=config.node_id,
            max_wait_ms=integer("replica.fetch.wait.max.ms"),
            min_bytes=integer("replica.fetch.min.bytes"),
            max_bytes=integer("replica.fetch.response.max.bytes"),
            partition_max_bytes=integer("replica.fetch.max.bytes"),
            backoff_ms=integer("replica.fetch.backoff.ms"),
        )
        self.quota = quota
        self.endpoint_of = endpoint_of
        self.broker_epoch = broker_epoch
        self.now_ms = now_ms
        self._make_peers = make_peers
        self._timeout_s = integer("replica.socket.timeout.ms") / 1000
        self._per_leader = integer("num.replica.fetchers")
        self._fetchers: dict[FetcherKey, FetcherTask] = {}
        self._places: dict[Partition, FetcherKey] = {}
        self._bytes_in_before = 0

    def __iter__(self) -> "Iterator[FetcherTask]":
        return iter(list(self._fetchers.values()))

    @property
    def bytes_in(self) -> int:
        """Return the bytes of records fetched since the start."""
        return self._bytes_in_before + sum(task.fetcher.bytes_in for task in self)

    # -- the broker's port

    def follow(self, replicas: Sequence[Following]) -> None:
        """See `ReplicaFetching`."""
        for replica in replicas:
            partition = replica.partition
            self.stop([partition])
            if partition.is_offline or partition.is_deleted:
                continue
            place = self._place(partition)
            task = self._fetchers.get(place)
            if task is None:
                client_id = f"broker-{self.broker_id}-fetcher-{place[1]}"
                peers = self._make_peers(client_id, self._timeout_s)
                task = self._fetchers[place] = FetcherTask(self, place[0], peers)
            self._places[partition] = place
            task.add(replica)

    def throttle(self, partition: Partition) -> None:
        """See `ReplicaFetching`."""
        place = self._places.get(partition)
        if place is not None:
            self._fetchers[place].throttle(partition)

    def stop(self, partitions: Iterable[Partition]) -> None:
        """See `ReplicaFetching`."""
        for partition in partitions:
            place = self._places.pop(partition, None)
            if place is not None:
                task = self._fetchers[place]
                task.remove(partition)
                if task.is_idle:
                    del self._fetchers[place]
                    self._bytes_in_before += task.fetcher.bytes_in
                    task.end()

    def resize(self, per_leader: int) -> None:
        """Spread the partitions over another number of fetchers (`num.replica.fetchers`)."""
        if per_leader != self._per_leader:
            self._per_leader = per_leader
            self.follow([following for task in self for following in task.followed()])

    async def stop_all(self) -> None:
        tasks, self._fetchers = list(self._fetchers.values()), {}
        self._places.clear()
        for task in tasks:
            task.end()
        await asyncio.gather(*(task.ended() for task in tasks))

    def _place(self, partition: Partition) -> FetcherKey:
        """Hash the partition to a fetcher: stable over time, adjacent partitions on others."""
        number = int.from_bytes(partition.topic_id[:8], "big") + partition.topic_partition.partition
        return partition.leader_id, number % self._per_leader


class FetcherTask:
    """The task of one fetcher."""

    def __init__(self, owner: ReplicaFetchers, leader_id: int, peers: Peers) -> None:
        self.leader_id = leader_id
        self.fetcher = Fetcher(owner.settings)
        self._owner = owner
        self._peers = peers
        self._partitions: dict[TopicIdPartition, Partition] = {}
        self._is_changed = asyncio.Event()
        self._is_silent = False
        self._has_session = False
        self._loop = asyncio.get_running_loop()
        self._task = background.run_forever(
            self._turn,
            f"fetching from broker {leader_id}",
            on_failure=self.fetcher.on_no_answer,
            pause_s=owner.settings.backoff_ms / 1000,
        )
        self._task.add_done_callback(lambda _: peers.close())

    @property
    def is_idle(self) -> bool:
        return not self._partitions

    def add(self, replica: Following) -> None:
        partition, position = replica
        where = partition.topic_partition
        key = TopicIdPartition(partition.topic_id, where.partition)
        self._partitions[key] = partition
        followed = FollowedPartition(where.topic, key, partition.leader_epoch, position)
        self.fetcher.add(followed)
        if partition.is_throttled_as_follower:
            self.fetcher.throttle(key, True)
        self._is_changed.set()

    def followed(self) -> list[Following]:
        """Return the fetched partitions with their positions."""
        return [Following(self._partitions[one.key], one.position) for one in self.fetcher]

    def throttle(self, partition: Partition) -> None:
        key = TopicIdPartition(partition.topic_id, partition.topic_partition.partition)
        self.fetcher.throttle(key, partition.is_throttled_as_follower)
        self._is_changed.set()

    def remove(self, partition: Partition) -> None:
        key = TopicIdPartition(partition.topic_id, partition.topic_partition.partition)
        self._partitions.pop(key, None)
        self.fetcher.remove(key)

    def end(self) -> None:
        """Cancel what is under way; `ended` waits for that."""
        self._task.cancel()

    async def ended(self) -> None:
        await background.end(self._task)

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    async def _turn(self) -> None:
        wait_ms = await self._round()
        if wait_ms != 0:
            await self._wait(wait_ms)

    async def _wait(self, wait_ms: int | None) -> None:
        """Wait for that time (None: for ever), or until partitions change."""
        try:
            async with asyncio.timeout(None if wait_ms is None else wait_ms / 1000):
                await self._is_changed.wait()
        except TimeoutError:
            pass

    async def _round(self) -> int | None:
        """Send one request and do what its answer asks for.

        Returns:
            How many ms to wait before the next one; None until partitions change.
        """
        self._is_changed.clear()
        now_ms = self._now_ms()
        owner, fetcher = self._owner, self.fetcher
        request = fetcher.next_request(owner.broker_epoch(), now_ms, owner.quota.is_exceeded)
        if request is None:
            if fetcher.waits_for_quota:
                return owner.settings.backoff_ms
            wake_ms = fetcher.wake_ms
            return None if wake_ms is None else max(wake_ms - now_ms, 1)
        response = await self._ask(request)
        if response is None:
            fetcher.on_no_answer()
            return owner.settings.backoff_ms
        steps = fetcher.on_response(cast(FetchResponse, response), self._now_ms())
        had_session, self._has_session = self._has_session, steps is not None
        if steps is None:
            # A session that the leader has forgotten is begun anew at once; later failures wait.
            return 0 if had_session else owner.settings.backoff_ms
        if steps:
            await self._do(steps)
        return 0

    async def _ask(self, request: Message) -> Message | None:
        """Return the leader's answer; None without one."""
        endpoint = self._owner.endpoint_of(self.leader_id)
        if endpoint is None:
            return None
        destination = Destination(self.leader_id, endpoint.host, endpoint.port)
        try:
            answer = await self._peers.request(destination, request)
        except (PeerUnavailable, PeerLacksVersion) as error:
            if not self._is_silent:
                log.warning("no answer from broker %d: %s", self.leader_id, error)
            self._is_silent = True
            return None
        if self._is_silent:
            log.info("broker %d answers again", self.leader_id)
        self._is_silent = False
        return answer

    # -- work on logs

    async def _do(self, steps: Sequence[Step]) -> None:
        """Work on the logs; then ask the leader for offsets where it lacks the fetch offset."""
        lost = [s.partition for s in steps if isinstance(s.work, FindLeaderOffsets)]
        await self._work([s for s in steps if not isinstance(s.work, FindLeaderOffsets)])
        if lost:
            await self._work(await self._find_offsets(lost))

    async def _work(self, steps: Sequence[Step]) -> None:
        plan: dict[int, list[tuple[Step, Partition]]] = {}
        for step in steps:
            # The partition may have been stopped while the leader was asked for offsets.
            if self.fetcher.follows(step.partition):
                partition = self._partitions[step.partition.key]
                plan.setdefault(id(partition.directory), []).append((step, partition))
        hops = [self._submit(part) for part in plan.values()]
        for part, hop in zip(plan.values(), hops, strict=True):
            try:
                results: Sequence[Any] = await hop
            except LogDirectoryFailed as failure:
                results = [failure] * len(part)
            for (step, partition), result in zip(part, results, strict=True):
                self._done(step, partition, result)

    def _submit(self, part: Sequence[tuple[Step, Partition]]) -> Awaitable[Sequence[Any]]:
        directory: LogDirectory = part[0][1].directory
        work = [(partition.log, cast(LogWork, step.work)) for step, partition in part]
        return directory.executor.submit(
            apply_leader_answers, directory.store, work, self._owner.now_ms()
        )

    def _done(self, step: Step, partition: Partition, result: LogPosition | Exception) -> None:
        if step.partition.is_throttled and isinstance(step.work, Append):
            self._owner.quota.record(len(step.work.records))
        if isinstance(result, LogPosition):
            self.fetcher.on_done(step, result, self._now_ms())
            partition.follower_advanced()
        elif isinstance(result, CorruptRecords | UnexpectedAppendOffset):
            log.error(
                "broker %d sent bad records for %s: %s", self.leader_id, step.partition, result
            )
            self.fetcher.on_refused(step, self._now_ms())
        else:
            if not isinstance(result, LogDirectoryFailed):  # logged once for the directory
                log.error("stopped following %s: %r", step.partition, result)
            self.fetcher.on_failed(step, repr(result))

    async def _find_offsets(self, lost: Sequence[FollowedPartition]) -> list[Step]:
        """Ask for the ends and then the starts of the leader's logs.

        In this order an old answer does no harm: an end only grows.
        """
        fetcher = self.fetcher
        latest = await self._ask(fetcher.offsets_request(lost, LATEST))
        earliest = await self._ask(fetcher.offsets_request(lost, EARLIEST)) if latest else None
        return fetcher.on_offsets(
            lost,
            cast(ListOffsetsResponse, latest or ListOffsetsResponse()),
            cast(ListOffsetsResponse, earliest or ListOffsetsResponse()),
            self._now_ms(),
        )
