"""Runs the fetchers of this broker's followers, each in rounds over one connection.

A fetcher has one open request at a time and applies each response before the next request: its
fetch offset acknowledges everything before it. Partitions of one leader are spread over
`num.replica.fetchers` fetchers; a fetcher without partitions ends.

A round is a chain of callbacks (request, response, work on the logs, next request), because a task
would need one iteration of the event loop for each.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeAlias, cast

from spindle.common.errors import CorruptRecords, LogDirectoryFailed
from spindle.common.ids import Endpoint, TopicIdPartition
from spindle.common.promise import Promise
from spindle.config.node_config import NodeConfig
from spindle.disks.log_directory import LogDirectory
from spindle.log.errors import UnexpectedAppendOffset
from spindle.log.log import Log
from spindle.protocol.message import Message
from spindle.protocol.messages.fetch import FetchRequest
from spindle.protocol.messages.list_offsets import ListOffsetsResponse
from spindle.protocol.sentinels import EARLIEST, LATEST
from spindle.raft.ready import Destination
from spindle.replicas.damages import DamagedReplicas
from spindle.replicas.follower_appends import apply_leader_answers
from spindle.replicas.partition import Partition
from spindle.replicas.ports import FetchStart
from spindle.replication.fetcher import (
    Fetcher,
    FetcherSettings,
    FindLeaderOffsets,
    FollowedPartition,
    Step,
)
from spindle.replication.follower_log import Append, LogPosition
from spindle.runtime import background
from spindle.runtime.peers.port import PeerLacksVersion, PeerUnavailable, PromptPeers
from spindle.serving.quotas.replication import ReplicationQuota

log = logging.getLogger(__name__)

FetcherKey: TypeAlias = tuple[int, int]
"""Id of the leader and number of the fetcher."""


MakePeers: TypeAlias = Callable[[str, float], PromptPeers]
"""Makes connections; takes the client id and how many seconds to wait for an answer."""


class ReplicaFetchers:
    """All fetchers of a broker.

    Args:
        quota: limits the bytes fetched for throttled partitions.
        endpoint_of: returns the endpoint of a broker; None while it is fenced.
        broker_epoch: returns the epoch of the present registration.
        now_ms: the wall clock, for times of files.

    Attributes:
        damages: gets what leaders sent with wrong checksums or offsets.
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
        self.damages = DamagedReplicas()
        self._make_peers = make_peers
        self._timeout_s = integer("replica.socket.timeout.ms") / 1000
        self._per_leader = integer("num.replica.fetchers")
        self._fetchers: dict[FetcherKey, FetcherRounds] = {}
        self._places: dict[Partition, FetcherKey] = {}
        self._bytes_in_before = 0

    def __iter__(self) -> "Iterator[FetcherRounds]":
        return iter(list(self._fetchers.values()))

    @property
    def bytes_in(self) -> int:
        """Return the bytes of records fetched since the start."""
        return self._bytes_in_before + sum(rounds.fetcher.bytes_in for rounds in self)

    # -- the broker's port

    def follow(self, replicas: Sequence[FetchStart]) -> None:
        """See `ReplicaFetcherPort`."""
        for replica in replicas:
            partition = replica.partition
            self.stop([partition])
            if partition.is_offline or partition.is_deleted:
                continue
            place = self._place(partition)
            rounds = self._fetchers.get(place)
            if rounds is None:
                client_id = f"broker-{self.broker_id}-fetcher-{place[1]}"
                peers = self._make_peers(client_id, self._timeout_s)
                rounds = self._fetchers[place] = FetcherRounds(self, place[0], peers)
            self._places[partition] = place
            rounds.add(replica)

    def lag(self, partition: Partition) -> int:
        """See `ReplicaFetcherPort`."""
        place = self._places.get(partition)
        return -1 if place is None else self._fetchers[place].lag(partition)

    def throttle(self, partition: Partition) -> None:
        """See `ReplicaFetcherPort`."""
        place = self._places.get(partition)
        if place is not None:
            self._fetchers[place].throttle(partition)

    def stop(self, partitions: Iterable[Partition]) -> None:
        """See `ReplicaFetcherPort`."""
        for partition in partitions:
            place = self._places.pop(partition, None)
            if place is not None:
                rounds = self._fetchers[place]
                rounds.remove(partition)
                if rounds.is_idle:
                    del self._fetchers[place]
                    self._bytes_in_before += rounds.fetcher.bytes_in
                    rounds.end()

    def resize(self, per_leader: int) -> None:
        """Spread the partitions over another number of fetchers (`num.replica.fetchers`)."""
        if per_leader != self._per_leader:
            self._per_leader = per_leader
            self.follow([following for rounds in self for following in rounds.followed()])

    def stop_all(self) -> None:
        """Stop fetching; running jobs on the directories' threads continue."""
        fetchers, self._fetchers = list(self._fetchers.values()), {}
        self._places.clear()
        for rounds in fetchers:
            rounds.end()

    def _place(self, partition: Partition) -> FetcherKey:
        """Return the fetcher's number for a partition: a hash that spreads adjacent partitions."""
        number = int.from_bytes(partition.topic_id[:8], "big") + partition.topic_partition.partition
        return partition.leader_id, number % self._per_leader


class FetcherRounds:
    """The rounds of one fetcher: fetch, work on the logs, fetch again.

    An unexpected exception is logged; the fetcher then opens a new session after a pause.

    Attributes:
        requests: fetch requests that were sent.
    """

    def __init__(self, owner: ReplicaFetchers, leader_id: int, peers: PromptPeers) -> None:
        self.leader_id = leader_id
        self.fetcher = Fetcher(owner.settings)
        self.requests = 0
        self._owner = owner
        self._peers = peers
        self._partitions: dict[TopicIdPartition, Partition] = {}
        self._lost: list[FollowedPartition] = []
        self._open_hops = 0
        self._request: Promise[Message] | None = None
        self._timer: asyncio.Handle | None = None
        self._is_paused = False
        self._is_changed = False
        self._is_silent = False
        self._has_session = False
        self._is_ended = False
        self._loop = asyncio.get_running_loop()
        self._pause(0)

    @property
    def is_idle(self) -> bool:
        return not self._partitions

    def add(self, replica: FetchStart) -> None:
        partition, position, is_same_epoch = replica
        where = partition.topic_partition
        key = TopicIdPartition(partition.topic_id, where.partition)
        self._partitions[key] = partition
        followed = FollowedPartition(where.topic, key, partition.leader_epoch, position)
        self.fetcher.add(followed, is_same_epoch=is_same_epoch)
        if partition.is_throttled_as_follower:
            self.fetcher.throttle(key, True)
        self._note_change()

    def followed(self) -> list[FetchStart]:
        """Return the fetched partitions with their positions."""
        return [FetchStart(self._partitions[one.key], one.position) for one in self.fetcher]

    def lag(self, partition: Partition) -> int:
        index = partition.topic_partition.partition
        return self.fetcher.lag(TopicIdPartition(partition.topic_id, index))

    def throttle(self, partition: Partition) -> None:
        key = TopicIdPartition(partition.topic_id, partition.topic_partition.partition)
        self.fetcher.throttle(key, partition.is_throttled_as_follower)
        self._note_change()

    def remove(self, partition: Partition) -> None:
        key = TopicIdPartition(partition.topic_id, partition.topic_partition.partition)
        self._partitions.pop(key, None)
        self.fetcher.remove(key)

    def end(self) -> None:
        """Start no more work, and close the connection."""
        self._is_ended = True
        if self._timer is not None:
            self._timer.cancel()
        if self._request is not None:
            self._request.cancel()
        self._peers.close()

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    # -- steps and pauses

    def _step(self, step: Callable[..., None], *args: Any) -> None:
        """Run one step of a round. If it fails, open a new session after a pause."""
        if self._is_ended:
            return
        try:
            step(*args)
        except Exception as error:  # noqa: BLE001 - reported, and the next round may succeed
            self._report(error)
            self.fetcher.on_no_answer()
            self._pause(self._owner.settings.backoff_ms)

    def _report(self, error: BaseException) -> None:
        background.log_failure(f"fetching from broker {self.leader_id}", error)

    def _pause(self, wait_ms: int | None) -> None:
        """Start the next round after that time (None: never), or when partitions change."""
        self._is_paused = True
        if self._is_changed or wait_ms == 0:
            self._timer = self._loop.call_soon(self._step, self._begin)
        elif wait_ms is not None:
            self._timer = self._loop.call_later(wait_ms / 1000, self._step, self._begin)

    def _note_change(self) -> None:
        """End a pause: the partitions have changed."""
        self._is_changed = True
        if self._is_paused:
            if self._timer is not None:
                self._timer.cancel()
            self._pause(0)

    # -- asking

    def _begin(self) -> None:
        """Send the next fetch; pause if there is nothing to fetch now."""
        self._timer = None
        self._is_paused = self._is_changed = False
        now_ms = self._now_ms()
        owner, fetcher = self._owner, self.fetcher
        request = fetcher.next_request(owner.broker_epoch(), now_ms, owner.quota.is_exceeded)
        if request is not None:
            self._ask(request, self._on_fetched)
        elif fetcher.waits_for_quota:
            self._pause(owner.settings.backoff_ms)
        else:
            wake_ms = fetcher.wake_ms
            self._pause(None if wake_ms is None else max(wake_ms - now_ms, 1))

    def _ask(self, request: Message, on_answer: Callable[[Message | None], None]) -> None:
        """Send a request; then call back with the leader's response, None if it fails."""
        endpoint = self._owner.endpoint_of(self.leader_id)
        if endpoint is None:
            on_answer(None)
            return
        self.requests += isinstance(request, FetchRequest)
        destination = Destination(self.leader_id, endpoint.host, endpoint.port)
        self._request = self._peers.request(destination, request)
        self._request.on_done(partial(self._step, self._on_answer, on_answer))

    def _on_answer(
        self,
        on_answer: Callable[[Message | None], None],
        answer: Message | None,
        error: BaseException | None,
    ) -> None:
        self._request = None
        if isinstance(error, PeerUnavailable | PeerLacksVersion):
            if not self._is_silent:
                log.warning("no answer from broker %d: %s", self.leader_id, error)
            self._is_silent = True
        elif error is not None:
            if not isinstance(error, asyncio.CancelledError):  # the event loop ends
                self._report(error)
        elif self._is_silent:
            log.info("broker %d answers again", self.leader_id)
            self._is_silent = False
        on_answer(answer)

    def _on_fetched(self, response: Any) -> None:
        """Apply the response."""
        backoff_ms = self._owner.settings.backoff_ms
        if response is None:
            self.fetcher.on_no_answer()
            self._pause(backoff_ms)
            return
        steps = self.fetcher.on_response(response, self._now_ms())
        had_session, self._has_session = self._has_session, steps is not None
        if steps is None:
            # If the leader has dropped the session, open a new one at once; other failures wait.
            self._pause(0 if had_session else backoff_ms)
        else:
            self._do(steps)

    # -- work on logs

    def _do(self, steps: Sequence[Step]) -> None:
        """Work on the logs, with one job for each directory; then continue the round."""
        plan: dict[int, list[tuple[Step, Partition]]] = {}
        for step in steps:
            # The partition may have been stopped while the request for offsets was open.
            if not self.fetcher.follows(step.partition):
                continue
            if isinstance(step.work, FindLeaderOffsets):
                self._lost.append(step.partition)
                continue
            partition = self._partitions[step.partition.key]
            plan.setdefault(id(partition.directory), []).append((step, partition))
        self._open_hops = len(plan)
        for part in plan.values():
            self._submit(part)
        if not plan:
            self._go_on()

    def _submit(self, part: Sequence[tuple[Step, Partition]]) -> None:
        directory: LogDirectory = part[0][1].directory
        work: list[tuple[Log, Any]] = [(partition.log, step.work) for step, partition in part]
        directory.executor.call(
            partial(self._step, self._on_worked, part),
            apply_leader_answers,
            directory.store,
            work,
            self._owner.now_ms(),
        )

    def _on_worked(
        self,
        part: Sequence[tuple[Step, Partition]],
        results: Sequence[LogPosition | BaseException] | None,
        error: BaseException | None,
    ) -> None:
        if results is None:
            assert error is not None
            results = [error] * len(part)
        for (step, partition), result in zip(part, results, strict=True):
            try:
                self._done(step, partition, result)
            except Exception as failure:  # noqa: BLE001 - reported, and the partition is fetched again
                self._report(failure)
                self.fetcher.on_refused(step, self._now_ms())
        self._open_hops -= 1
        if not self._open_hops:
            self._go_on()

    def _go_on(self) -> None:
        """Request the leader's offsets for partitions whose fetch offset it lacks; then fetch."""
        if self._lost:
            lost, self._lost = self._lost, []
            self._ask(self.fetcher.offsets_request(lost, LATEST), partial(self._on_latest, lost))
        else:
            self._begin()

    def _done(self, step: Step, partition: Partition, result: LogPosition | BaseException) -> None:
        if step.partition.is_throttled and isinstance(step.work, Append):
            self._owner.quota.record(len(step.work.records))
        if isinstance(result, LogPosition):
            self.fetcher.on_done(step, result, self._now_ms())
            partition.follower_advanced()
            self._owner.damages.appended(partition.log)
        elif isinstance(result, CorruptRecords | UnexpectedAppendOffset):
            log.error(
                "broker %d sent bad records for %s: %s", self.leader_id, step.partition, result
            )
            self._owner.damages.note_sent(partition.log, self.leader_id, str(result))
            self.fetcher.on_refused(step, self._now_ms())
        else:
            if not isinstance(result, LogDirectoryFailed):  # logged once for the directory
                log.error("stopped following %s: %r", step.partition, result)
            self.fetcher.on_failed(step, repr(result))

    # -- where the leader's log begins and ends

    def _on_latest(self, lost: Sequence[FollowedPartition], latest: Message | None) -> None:
        """Request the log starts from the leader, after the log ends.

        In this order an outdated response is harmless, because an end only grows.
        """
        if latest is None:
            self._on_offsets(lost, ListOffsetsResponse(), None)
            return
        earliest = self.fetcher.offsets_request(lost, EARLIEST)
        self._ask(earliest, partial(self._on_offsets, lost, cast(ListOffsetsResponse, latest)))

    def _on_offsets(
        self,
        lost: Sequence[FollowedPartition],
        latest: ListOffsetsResponse,
        earliest: Message | None,
    ) -> None:
        starts = cast(ListOffsetsResponse, earliest or ListOffsetsResponse())
        self._do(self.fetcher.on_offsets(lost, latest, starts, self._now_ms()))
