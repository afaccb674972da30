"""One native lane with logs of its own, and clients that speak to it without a node."""

import fcntl
import os
import socket
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from struct import pack, unpack
from types import SimpleNamespace
from typing import Any

import pytest
from node_harness import batch_of, fetch_request, produce_request
from waiting import wait_until

from spindle.common.filesystem import OsFileSystem
from spindle.common.ids import TopicPartition
from spindle.common.native import is_native_available
from spindle.disks.io_counts import DirectoryIo
from spindle.log.loading import create_log
from spindle.log.log import Log
from spindle.log.log_config import LogConfig
from spindle.log.storage import LogStorage
from spindle.protocol.api import response_class, response_header_version
from spindle.protocol.codec import decode, encode
from spindle.protocol.framing import request_prefix
from spindle.protocol.message import Message

if not is_native_available():
    pytest.skip("there is no native code", allow_module_level=True)
from spindle._native import Lane
from spindle.runtime.lanes.directory_lane import DirectoryLane, GrantedLease

VERSION = 12
NOW_MS = 1_700_000_000_000
MIB = 1 << 20


class LaneClient:
    """A connection that the lane serves."""

    def __init__(self, native: Lane, token: int) -> None:
        self.token = token
        self.own, lane_end = socket.socketpair()
        self.own.settimeout(50.0)
        lane_end.setblocking(False)
        native.adopt(lane_end.fileno(), token, 0, b"", None)
        lane_end.close()  # the lane has a descriptor of its own

    def send(self, request: Message) -> None:
        body = request_prefix(request.API_KEY, VERSION, 1, "test") + encode(request, VERSION)
        self.own.sendall(pack(">i", len(body)) + body)

    def read_exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            part = self.own.recv(min(count - len(data), MIB))
            if not part:
                raise ConnectionError("the lane has closed the connection")
            data += part
        return bytes(data)

    def receive(self, request: Message) -> Any:
        """Return the response to a request that was sent."""
        frame = self.read_exactly(unpack(">i", self.read_exactly(4))[0])
        start = 4 + response_header_version(request.API_KEY, VERSION)
        return decode(response_class(request.API_KEY), VERSION, frame, start)[0]

    def ask(self, request: Message) -> Any:
        self.send(request)
        return self.receive(request)

    def wait_until_read(self) -> None:
        """Return when the lane has received all that was sent."""

        def unread() -> int:
            return int.from_bytes(fcntl.ioctl(self.own, termios.TIOCOUTQ, bytes(4)), "little")

        wait_until(lambda: not unread())

    def close(self) -> None:
        self.own.close()


class Served:
    """A lane with one leased log for each partition of the topic `t`.

    Each log has one record, which is committed if this is its only replica.
    """

    def __init__(self, folder: Path, partitions: int, *, is_sole_replica: bool, **config: Any):
        self.storage = LogStorage(OsFileSystem(), str(folder))
        self.native = Lane(str(folder), 100 * MIB, 100 * MIB, False)
        self.io = DirectoryIo(str(folder))
        directory: Any = SimpleNamespace(executor=None)
        self.lane = DirectoryLane(self.native, directory, self.io, lambda: None)
        self.clients: list[LaneClient] = []
        self.logs = [self._log(index, LogConfig(**config)) for index in range(partitions)]
        if is_sole_replica:
            for log in self.logs:
                log.update_high_watermark(1)
        self.leases = [self._lend(log, is_sole_replica) for log in self.logs]

    def _log(self, index: int, config: LogConfig) -> Log:
        where, topic_id = TopicPartition("t", index), bytes(range(16))
        log = create_log(self.storage, f"t-{index}", where, topic_id, config, NOW_MS)
        log.append_as_leader(batch_of(b"first"), 0, NOW_MS)
        return log

    def _lend(self, log: Log, is_sole_replica: bool) -> GrantedLease:
        with self.gate():
            lease = self.lane.grant(log, 0, is_sole_replica)
        assert lease is not None
        lease.activate()
        return lease

    @contextmanager
    def gate(self) -> Iterator[None]:
        """Hold the gate, as a function on the directory's Python thread does."""
        self.lane.enter()
        try:
            yield
        finally:
            self.lane.leave()

    def client(self) -> LaneClient:
        client = LaneClient(self.native, len(self.clients) + 1)
        self.clients.append(client)
        return client

    def returned(self) -> list[int]:
        """Return the tokens of the connections that the lane has given back since the last call."""
        events = self.native.take_events()
        return [token for token, received, *_ in events if received is not None]

    def stop(self) -> None:
        for client in self.clients:
            client.close()
        self.native.stop()
        assert self.native.join(50.0)
        with suppress(FileNotFoundError):
            self.storage.handles.release_below(self.storage.path)


@contextmanager
def serving(
    folder: Path, partitions: int = 1, *, is_sole_replica: bool = True, **config: Any
) -> Iterator[Served]:
    served = Served(folder, partitions, is_sole_replica=is_sole_replica, **config)
    try:
        yield served
    finally:
        served.stop()


def parked(served: Served, partition: int, offset: int = 0) -> tuple[LaneClient, Message]:
    """Return a client whose fetch waits in the lane."""
    client, request = served.client(), fetch_request("t", partition, offset)
    request.max_wait_ms = 1_000_000
    steps = served.native.disk_steps
    client.send(request)
    wait_until(lambda: served.native.disk_steps == steps + 2)
    return client, request


def filled(served: Served, size_bytes: int) -> bytes:
    """Append records of this size to partition 0; return the log's content."""
    request = produce_request("t", 0, batch_of(bytes(MIB // 2)), acks=1)
    client = served.client()
    for _ in range(size_bytes // (MIB // 2)):
        assert client.ask(request).responses[0].partition_responses[0].error_code == 0
    return Path(served.logs[0].segments.active.path).read_bytes()


def test_a_high_watermark_that_moves_wakes_the_fetches_of_its_partition_alone(
    tmp_path: Path,
) -> None:
    with serving(tmp_path, 2, is_sole_replica=False) as served:
        one, request = parked(served, 0)
        other, other_request = parked(served, 1)
        steps = served.native.disk_steps
        served.leases[0].raise_high_watermark(1)
        response = one.receive(request)
        assert response.responses[0].partitions[0].high_watermark == 1
        assert served.native.disk_steps == steps + 2
        served.leases[1].raise_high_watermark(1)
        response = other.receive(other_request)
        assert response.responses[0].partitions[0].high_watermark == 1


def test_a_fetch_that_waits_for_several_partitions_is_woken_by_each(tmp_path: Path) -> None:
    with serving(tmp_path, 3, is_sole_replica=False) as served:
        client, request = served.client(), fetch_request("t", 0, 0)
        request.max_wait_ms, request.min_bytes = 1_000_000, 200
        for index in (1, 2):
            request.topics[0].partitions += fetch_request("t", index, 0).topics[0].partitions
        client.send(request)
        wait_until(lambda: served.native.disk_steps >= 2)
        for lease in served.leases:
            lease.raise_high_watermark(1)
        response = client.receive(request)
        marks = [part.high_watermark for part in response.responses[0].partitions]
        assert marks == [1, 1, 1]


def test_a_fetch_that_waits_goes_up_when_its_lease_ends(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        client, _ = parked(served, 0, offset=1)
        served.leases[0].end()
        wait_until(lambda: client.token in served.returned())


def test_reads_of_a_directory_without_appends_are_counted(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        response = served.client().ask(fetch_request("t", 0, 0))
        size_bytes = len(response.responses[0].partitions[0].records)
        with served.gate():
            assert (served.io.reads.count, served.io.reads.size_bytes) == (1, size_bytes)
            assert served.io.writes.count == 0


def test_records_sent_from_a_file_count_as_read_when_they_are_sent(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        size_bytes = len(filled(served, 4 * MIB))
        # This fetch finds more than it may have, and less than it waits for.
        client, request = served.client(), fetch_request("t", 0, 0)
        request.max_wait_ms, request.min_bytes = 1_000_000, 2 * size_bytes
        client.send(request)
        client.wait_until_read()
        assert served.client().ask(fetch_request("t", 0, 9)).responses
        client.close()
        response = served.client().ask(fetch_request("t", 0, 0))
        assert len(response.responses[0].partitions[0].records) == size_bytes
        with served.gate():
            assert served.io.reads.size_bytes == size_bytes


def test_half_a_frame_counts_as_held_until_its_connection_is_closed(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        clients = [served.client() for _ in range(3)]
        for client in clients:
            client.own.sendall(pack(">i", 100 * MIB - 4) + bytes(100_000))
        wait_until(lambda: served.native.held_bytes == 3 * 100_004)
        for client in clients:
            client.own.close()
        wait_until(lambda: served.native.held_bytes == 0)


def test_a_produce_whose_lease_ends_after_it_was_received_goes_up_unwritten(
    tmp_path: Path,
) -> None:
    with serving(tmp_path) as served:
        client, request = served.client(), produce_request("t", 0, batch_of(b"late"), acks=1)
        size_bytes = Path(served.logs[0].segments.active.path).stat().st_size
        with served.gate():
            client.send(request)
            client.wait_until_read()
            served.leases[0].end()
        wait_until(lambda: client.token in served.returned())
        assert Path(served.logs[0].segments.active.path).stat().st_size == size_bytes


def test_records_of_a_segment_that_is_deleted_meanwhile_are_sent_whole(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        content = filled(served, 20 * MIB)
        client, request = served.client(), fetch_request("t", 0, 0)
        client.send(request)
        begin = client.read_exactly(100)
        with served.gate():
            log = served.logs[0]
            log.roll(NOW_MS)
            log.update_high_watermark(log.log_end_offset)
            log.increment_log_start_offset(log.log_end_offset)
            assert log.delete_old_segments(NOW_MS, only_below_start=True) == 1
            for path in tmp_path.glob("t-0/*.deleted"):
                path.unlink()
        frame = begin + client.read_exactly(unpack(">i", begin[:4])[0] + 4 - len(begin))
        assert content in frame


def test_no_more_is_sent_of_records_that_were_cut_from_the_log(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        filled(served, 20 * MIB)
        client, request = served.client(), fetch_request("t", 0, 0)
        client.send(request)
        begin = client.read_exactly(100)
        with served.gate():
            served.logs[0].truncate_to(1)
            # Other records take the place of those that were cut.
            for _ in range(40):
                served.logs[0].append_as_leader(batch_of(os.urandom(MIB // 2)), 1, NOW_MS)
        with pytest.raises(ConnectionError):
            client.read_exactly(unpack(">i", begin[:4])[0] + 4 - len(begin))


def test_a_slow_reader_holds_up_neither_appends_nor_the_thread(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        filled(served, 20 * MIB)
        slow, request = served.client(), fetch_request("t", 0, 0)
        slow.send(request)
        begin = slow.read_exactly(100)
        append = produce_request("t", 0, batch_of(b"v"), acks=1)
        assert served.client().ask(append).responses[0].partition_responses[0].error_code == 0
        with served.gate():
            served.logs[0].end_lease()
        frame = begin + slow.read_exactly(unpack(">i", begin[:4])[0] + 4 - len(begin))
        assert len(frame) > 20 * MIB


def test_the_end_of_a_connection_in_the_middle_of_a_frame_is_reported(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        client = served.client()
        client.own.sendall(pack(">i", 1000) + bytes(500))
        client.wait_until_read()
        client.own.close()
        events: list[Any] = []

        def is_reported() -> bool:
            events.extend(served.native.take_events())
            return bool(events)

        wait_until(is_reported)
        assert [(token, received) for token, received, *_ in events] == [(client.token, None)]
