"""The lanes of a broker, on the event loop: which connections and partitions they serve.

A connection begins on the event loop. When it sends Produce or Fetch for partitions that its
broker leads, all in one directory, the partitions are leased to the directory's lane, and the
connection moves there as soon as it is idle. It comes back with the first request that the lane
cannot serve. A connection that comes back often stays longer each time.
"""

import asyncio
import logging
import os
from collections.abc import Iterable
from functools import partial
from typing import Final, NamedTuple

from spindle.common.ids import INTERNAL_TOPICS
from spindle.common.ports import Bytes
from spindle.disks.log_directory import LogDirectory
from spindle.protocol.api import APIS, PRODUCE
from spindle.protocol.sentinels import ACKS_ALL
from spindle.replicas.partition import Partition
from spindle.replication.fetch_session import LentPartition, LentSession
from spindle.runtime.disks.serial_executor import SerialExecutor
from spindle.runtime.lanes.directory_lane import DirectoryLane, GrantedLease, WatchedLane
from spindle.runtime.lanes.native_lanes import NativeLanes
from spindle.runtime.metrics.requests import RequestMetrics
from spindle.runtime.network.connection import Connection, ConnectionLanes
from spindle.serving.services import BrokerServices

log = logging.getLogger(__name__)

_PROGRESS_S: Final = 0.1
"""Interval at which the event loop takes the progress of lanes for which nothing waits."""
_SYNC_TICKS: Final = 10
_LAST_REQUEST_S: Final = 1.0
_LAST_RESPONSES_S: Final = 0.1
"""Time that a stop gives the clients of lanes to read their responses."""
_TAKE_BACK_S: Final = 1.0
_MAX_LEASES: Final = 64
_FILES_OF_LEASE: Final = 5
"""Open files of a lease: three of the active segment, and two of an older one for reading."""


class Seat(NamedTuple):
    """A connection in a lane, and its fetch session there (0 without one)."""

    connection: Connection
    lane: DirectoryLane
    session_id: int


class _Wanted(NamedTuple):
    """The partitions of a request for a lane, and its fetch session (0 without one)."""

    partitions: list[Partition]
    session_id: int = 0


class Lanes(ConnectionLanes):
    """All lanes of a broker.

    Args:
        code: the native code.
        max_frame_bytes: `socket.request.max.bytes`.
        fetch_max_bytes: `fetch.max.bytes`.
        max_descriptors: descriptors that all lanes together may use; half of them for connections,
            of which each has a second descriptor in its lane.
    """

    def __init__(
        self,
        services: BrokerServices,
        metrics: RequestMetrics,
        code: NativeLanes,
        *,
        max_frame_bytes: int,
        fetch_max_bytes: int,
        max_descriptors: int,
    ) -> None:
        self._services = services
        self._metrics = metrics
        self._code = code
        self._max_frame_bytes = max_frame_bytes
        self._fetch_max_bytes = fetch_max_bytes
        self._max_connections = max_descriptors // 2
        self._max_files = max_descriptors // 2
        self._max_leases = 0
        self._loop = asyncio.get_running_loop()
        self._lanes: dict[LogDirectory, DirectoryLane] = {}
        self._failed: list[DirectoryLane] = []
        self._leases: dict[Partition, GrantedLease] = {}
        self._granting: set[Partition] = set()
        self._connections: dict[int, Seat] = {}
        self._last_token = 0
        self._listeners: list[str] = []
        self._timer: asyncio.TimerHandle | None = None
        self._ticks = 0
        self._was_busy = False
        self._is_stopping = False
        self._last_returned: asyncio.Future[None] | None = None

    # -- life

    def start(self, directories: Iterable[LogDirectory]) -> None:
        """Start a lane for each directory."""
        self.follow(directories)
        self._tick_later()

    def add(self, directory: LogDirectory) -> None:
        """Start the lane of a directory, unless it is offline or has one."""
        executor = directory.executor
        if (
            directory in self._lanes
            or executor.failure is not None
            or not isinstance(executor, SerialExecutor)
        ):
            return
        native = self._code.open(
            directory.path,
            self._max_frame_bytes,
            self._fetch_max_bytes,
            self._services.is_rack_aware,
        )
        lane = DirectoryLane(native, directory, executor.io, self._take_soon)
        self._lanes[directory] = lane
        executor.guard = lane
        executor.watch.add(WatchedLane(native))
        self._loop.add_reader(native.descriptor, self._on_events, lane)

    async def stop(self) -> None:
        """End all lanes; the logs are Python's again before their next use.

        Clients get a short time to read the responses that were begun.
        """
        self._is_stopping = True
        for lane in self._lanes.values():
            lane.native.ask_all_back()
        if self._connections:
            self._last_returned = self._loop.create_future()
            await asyncio.wait((self._last_returned,), timeout=_LAST_RESPONSES_S)
        if self._timer is not None:
            self._timer.cancel()
        for partition in list(self._leases):
            self.end_lease(partition)
        lanes = [*self._lanes.values(), *self._failed]
        for lane in lanes:
            lane.native.stop()
        for lane in lanes:
            lane.native.join(0 if lane in self._failed else _LAST_REQUEST_S)
            self._loop.remove_reader(lane.native.descriptor)
            self._on_events(lane)
        for seat in list(self._connections.values()):
            seat.connection.abort()
        self.take_progress()
        self._lanes.clear()
        self._failed.clear()

    def directory_failed(self, directory: LogDirectory) -> None:
        """Serve nothing more from a directory that is offline."""
        self.take_counts()
        lane = self._lanes.pop(directory, None)
        if lane is None:
            return
        lane.native.fail()
        self._failed.append(lane)
        self._loop.call_later(_TAKE_BACK_S, self._abandon, lane)

    def _abandon(self, lane: DirectoryLane) -> None:
        """Close the connections that a lane has not returned: its disk hangs."""
        if lane not in self._failed:
            return  # the broker has stopped
        self._failed.remove(lane)
        self._on_events(lane)
        for seat in list(self._connections.values()):
            if seat.lane is lane:
                seat.connection.abort()
        self._loop.remove_reader(lane.native.descriptor)
        lane.native.stop()

    def follow(self, directories: Iterable[LogDirectory]) -> None:
        """Have a lane for each of these directories, and for no other."""
        now = list(directories)
        for directory in [known for known in self._lanes if known not in now]:
            self.directory_failed(directory)
        for directory in now:
            self.add(directory)
        files = self._max_files // max(len(self._lanes), 1)
        self._max_leases = min(files // _FILES_OF_LEASE, _MAX_LEASES)

    def review_permissions(self) -> None:
        """Have all connections back if quotas or permissions have to be checked."""
        if self._connections and not self._may_serve():
            for lane in self._lanes.values():
                lane.native.ask_all_back()

    # -- connections

    @property
    def connection_count(self) -> int:
        """The number of connections in lanes."""
        return len(self._connections)

    @property
    def held_bytes(self) -> int:
        """Bytes of requests that lanes have received and not answered."""
        return sum(lane.native.held_bytes for lane in self._lanes.values())

    def consider(self, connection: Connection, frame: Bytes) -> None:
        """Move a connection to a lane if one can serve requests like this one.

        Otherwise the connection asks again after some more requests.
        """
        is_produce = int.from_bytes(frame[:2], "big") == PRODUCE
        wanted = self._wanted_by_produce(frame) if is_produce else self._wanted_by_fetch(frame)
        partitions, session_id = wanted
        lane = self._lane_of(partitions)
        has_room = (
            len(self._connections) < self._max_connections
            and len(partitions) <= self._max_leases // 2
        )
        if lane is None or not has_room or not self._may_serve():
            connection.keep_out_of_lanes()
            return
        is_ready = True
        for partition in partitions:
            lease = self._leases.get(partition)
            if lease is None or lease.has_ended:
                is_ready = False
                if not self._lease(lane, partition):
                    connection.keep_out_of_lanes()
                    return
        if is_ready:
            connection.move_to(partial(self._adopt, lane, connection, session_id))

    def _may_serve(self) -> bool:
        services = self._services
        is_limited = services.quotas.is_active or services.authorizer.is_active
        return not (is_limited or self._is_stopping)

    def _wanted_by_produce(self, frame: Bytes) -> _Wanted:
        """Return the partitions of a Produce request; none if it is not one for a lane."""
        produce = self._code.targets_of_produce(bytes(frame))
        if produce is None:
            return _Wanted([])
        acks, has_ids, targets = produce
        partitions = self._led(has_ids, targets)
        for partition in partitions:
            leader = partition.leader
            if acks == ACKS_ALL and not (leader and leader.is_sole_replica):
                return _Wanted([])
        return _Wanted(partitions)

    def _wanted_by_fetch(self, frame: Bytes) -> _Wanted:
        """Return the partitions of a consumer's Fetch, or of its session; none if it has none."""
        fetch = self._code.targets_of_fetch(bytes(frame))
        if fetch is None:
            return _Wanted([])
        session_id, session_epoch, has_ids, targets = fetch
        if not session_id and session_epoch < 0:
            return _Wanted(self._led(has_ids, targets))
        session = self._services.fetch_sessions.sessions.get(session_id)
        if session is None or session.is_replica:
            return _Wanted([])
        has_ids = session.uses_topic_ids
        keys = [
            (key.topic_id if has_ids else key.topic.encode(), key.partition)
            for key in session.partitions
        ]
        return _Wanted(self._led(has_ids, keys), session_id)

    def _led(self, has_ids: bool, targets: list[tuple[bytes, int]]) -> list[Partition]:
        """Return the partitions that this broker leads; none if it does not lead all of them."""
        by_id = self._services.metadata.image.topics.by_id
        partitions: list[Partition] = []
        for key, index in targets:
            topic = by_id.get(key) if has_ids else None
            name = (topic.name if topic else "") if has_ids else key.decode()
            partition = self._services.replicas.lookup(name, index)
            if partition is None or name in INTERNAL_TOPICS or partition.leader is None:
                return []
            partitions.append(partition)
        return partitions

    def _lane_of(self, partitions: list[Partition]) -> DirectoryLane | None:
        directories = {partition.directory for partition in partitions}
        return self._lanes.get(directories.pop()) if len(directories) == 1 else None

    def _adopt(
        self, lane: DirectoryLane, connection: Connection, session_id: int, received: bytes
    ) -> int | None:
        """Give a connection to a lane; return None if the lane cannot take it any more."""
        if not self._may_serve() or lane not in self._lanes.values():
            return None
        self._last_token += 1
        token = self._last_token
        if connection.listener not in self._listeners:
            self._listeners.append(connection.listener)
        listener = self._listeners.index(connection.listener)
        session = self._services.fetch_sessions.lend(session_id)
        try:
            lane.native.adopt(connection.descriptor(), token, listener, received, session)
        except OSError:
            if session is not None:
                self._services.fetch_sessions.take_back(session, self._services.steady_ms())
            return None
        self._connections[token] = Seat(connection, lane, 0 if session is None else session_id)
        return token

    def ask_back(self, token: int, max_idle_ms: int) -> None:
        """Have a connection back on the event loop, to see whether it is idle."""
        if token in self._connections:
            self._connections[token].lane.native.ask_back(token, max_idle_ms)

    def forget(self, token: int) -> None:
        """Forget a connection that was closed."""
        seat = self._remove(token)
        if seat is not None:
            self._services.fetch_sessions.end_lent(seat.session_id)

    def _remove(self, token: int) -> Seat | None:
        seat = self._connections.pop(token, None)
        if not self._connections and self._last_returned is not None:
            self._last_returned.set_result(None)
            self._last_returned = None
        return seat

    def _on_events(self, lane: DirectoryLane) -> None:
        failure = lane.native.failure()
        if failure is not None:
            # Before the requests that the lane returns, which get this error.
            number, text = failure
            lane.directory.executor.fail(OSError(number, os.strerror(number) or text))
        events = lane.native.take_events()
        self.take_progress()
        for token, received, is_served, idle_ms, session in events:
            if received is None:
                seat = self._connections.get(token)
                if seat is not None:
                    seat.connection.abort()
                continue
            if session is not None:
                session_id, epoch, uses_ids, parts = session
                lent = LentSession(session_id, epoch, uses_ids, [LentPartition(*p) for p in parts])
                self._services.fetch_sessions.take_back(lent, self._services.steady_ms())
            seat = self._remove(token)
            if seat is not None:
                seat.connection.return_from_lane(
                    received, is_served=is_served, idle_s=idle_ms / 1000
                )

    # -- leases

    def _lease(self, lane: DirectoryLane, partition: Partition) -> bool:
        """Begin to lease a partition; return False if the lane has too many leases."""
        leader = partition.leader
        if leader is None or partition in self._granting or partition.is_held:
            return True
        if len(lane.granted) + len(self._granting) >= self._max_leases:
            self._make_room(lane)
            return False
        self._granting.add(partition)
        granted_log, epoch = partition.log, leader.leader_epoch
        is_sole_replica = leader.is_sole_replica

        def done(lease: GrantedLease | None, _: BaseException | None) -> None:
            self._granting.discard(partition)
            if lease is None:
                return
            leader = partition.leader
            if (
                leader is None
                or leader.leader_epoch != epoch
                or leader.is_sole_replica != is_sole_replica
                or partition.log is not granted_log
                or granted_log.config is not lease.config
                or partition.is_held
                or partition.is_deleted
                or partition.is_offline
                or lane not in self._lanes.values()
            ):
                lease.end()
                return
            self._leases[partition] = lease
            partition.lend(lease, lambda: self._ended(partition, lease))
            lease.activate()

        lane.directory.executor.call(done, lane.grant, granted_log, epoch, is_sole_replica)
        return True

    def _make_room(self, lane: DirectoryLane) -> None:
        """End the oldest leases; the directory's thread closes their files."""
        lane.forget_ended()
        leases = list(lane.granted.values())
        if not any(lease.has_ended for lease in leases):
            for lease in leases[: self._max_leases // 4 + 1]:
                lease.end()
        lane.directory.executor.submit_nowait(_nothing)

    def end_lease(self, partition: Partition) -> None:
        """Take a partition back."""
        partition.end_lease()

    def _ended(self, partition: Partition, lease: GrantedLease) -> None:
        if self._leases.get(partition) is lease:
            del self._leases[partition]

    # -- progress

    @property
    def has_progress(self) -> bool:
        """True if lanes have served requests that Python has not taken into account."""
        for lane in self._lanes.values():  # noqa: SIM110 - called for each request
            if lane.native.has_progress:
                return True
        return False

    def take_progress(self) -> None:
        """Take appends and fetches of lanes into account: watermarks, waiting fetches, traffic."""
        for lane in list(self._lanes.values()):
            if not lane.native.has_progress:
                continue
            self._was_busy = True
            for number in lane.native.take_progress():
                lease = lane.granted.get(number)
                if lease is not None:
                    self._take_progress_of(lease)

    def _take_progress_of(self, lease: GrantedLease) -> None:
        where = lease.log.topic_partition
        produces, failed_produces, bytes_in, messages_in, fetches, bytes_out = lease.take_counts()
        partition = self._services.replicas.lookup(where.topic, where.partition)
        counts_of = self._services.traffic
        is_hosted = partition is not None
        traffic = counts_of.of(where.topic) if is_hosted else counts_of.of_former(where.topic)
        traffic.produces += produces
        traffic.failed_produces += failed_produces
        traffic.bytes_in += bytes_in
        traffic.messages_in += messages_in
        traffic.fetches += fetches
        traffic.bytes_out += bytes_out
        if partition is not None and partition.log is lease.log:
            partition.lane_appended()

    def _take_soon(self) -> None:
        self._loop.call_soon(self.take_progress)

    def _tick_later(self) -> None:
        self._timer = self._loop.call_later(_PROGRESS_S, self._tick)

    def _tick(self) -> None:
        self._tick_later()
        self.take_counts()
        self._ticks += 1
        if self._was_busy and self._ticks % _SYNC_TICKS == 0:
            self._was_busy = False
            for lane in self._lanes.values():
                lane.forget_ended()
                # Sizes and indexes of the logs are brought up to date before any function.
                lane.directory.executor.submit_nowait(_nothing)

    def take_counts(self) -> None:
        """Add what the lanes have served to the metrics."""
        self.take_progress()
        metrics = self._metrics
        for lane in self._lanes.values():
            bytes_in, bytes_out = lane.native.take_traffic()
            metrics.bytes_in += bytes_in
            metrics.bytes_out += bytes_out
            for listener, api_key, times in lane.native.take_request_times():
                name = APIS[api_key].name
                _, total_ns, _, by_time = times
                metrics.of(name, self._listeners[listener]).add(total_ns, by_time)


def _nothing() -> None:
    """Do nothing on the directory's thread."""
