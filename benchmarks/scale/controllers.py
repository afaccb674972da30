"""Controllers with the metadata of a large cluster, and 1,000 brokers that send heartbeats.

Measured, with one controller or three: the memory, the time from the start to the first change of a
configuration, and the latencies of heartbeats and changes while nothing else happens, while a
snapshot is written, while silent brokers are fenced (which moves their leaderships), and while
a controller that was killed loads the snapshot again.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from peers.node import Node, SpindleNode
from peers.paths import ROOT

from benchmarks.clusters import CONTROLLER, Cluster
from benchmarks.items import MIB
from benchmarks.scale.image import (
    SNAPSHOT_ID,
    TOPIC,
    Size,
    make_image,
    write_image,
)
from benchmarks.scale.latencies import BOUNDS_MS, Answer, Latencies, between
from spindle.client.blocking.settings import ClientSettings, HostPort
from spindle.client.blocking.transport import BlockingConnection
from spindle.client.errors import ClientError
from spindle.common.ids import OffsetAndEpoch
from spindle.metadata_log.snapshots import parse_snapshot_file_name
from spindle.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from spindle.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

LIMIT_S: Final = 300.0
CHANGE_INTERVAL_S: Final = 0.1
REST_S: Final = 10.0
SESSION_S: Final = 9.0
NEW_TOPICS: Final = 90
SILENT_BROKERS: Final = 10
NO_ANSWER: Final = -2
"""In place of an error code: no connection, or no answer in time."""
SNAPSHOT_BYTES: Final = 1 << 20
_TOPIC_RESOURCE: Final = 2
_SET: Final = 0


@dataclass
class Measured:
    """The figures of one cluster."""

    size: Size
    controllers: int
    figures: dict[str, float] = field(default_factory=dict)
    latencies: dict[str, Latencies] = field(default_factory=dict)


class Changes(threading.Thread):
    """Changes a configuration every 100 ms, at the active controller."""

    def __init__(self, addresses: Mapping[int, str]) -> None:
        super().__init__(name="changes", daemon=True)
        self.answers: list[Answer] = []
        self.active = next(iter(addresses))
        self._addresses = dict(addresses)
        self._connections: dict[int, BlockingConnection] = {}
        self._settings = ClientSettings((), connect_timeout_ms=1_000, request_timeout_ms=60_000)
        self._ended = threading.Event()
        self._lock = threading.Lock()

    def run(self) -> None:
        due_s = time.monotonic()
        while not self._ended.wait(max(0.0, due_s - time.monotonic())):
            code = self.request(_change(), IncrementalAlterConfigsResponse)
            self.answers.append(Answer(due_s, 1000 * (time.monotonic() - due_s), code))
            if code:
                ids = list(self._addresses)
                self.active = ids[(ids.index(self.active) + 1) % len(ids)]
            due_s = max(due_s + CHANGE_INTERVAL_S, time.monotonic())

    def request(self, request: Any, response: Any) -> int:
        """Return the first error code of the answer of the controller that was active last."""
        node_id = self.active
        with self._lock:
            try:
                known = self._connections.get(node_id)
                if known is None or not known.is_open:
                    host, _, port = self._addresses[node_id].rpartition(":")
                    known = BlockingConnection.open(HostPort(host, int(port)), self._settings)
                    self._connections[node_id] = known
                answer = known.request(request, response)
            except (ClientError, OSError):
                return NO_ANSWER
        parts = (*getattr(answer, "topics", ()), *getattr(answer, "responses", ()))
        return next((int(part.error_code) for part in parts if part.error_code), 0)

    def first_after(self, begin_s: float) -> float:
        """Return the seconds from a time until a change that was due after it is made."""
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            for answer in self.answers[-100:]:
                if answer.due_s >= begin_s and not answer.error_code:
                    return answer.due_s + answer.waited_ms / 1000 - begin_s
            time.sleep(0.01)
        raise RuntimeError(f"no change was made within {LIMIT_S:.0f} s")

    def end(self) -> None:
        self._ended.set()
        self.join(60)
        for connection in self._connections.values():
            connection.close()


class Heartbeats:
    """The process that sends the heartbeats."""

    def __init__(self, addresses: Mapping[int, str], brokers: int) -> None:
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "benchmarks.scale.heartbeats",
                ",".join(addresses.values()),
                str(brokers),
                str(min(SILENT_BROKERS, brokers // 2)),
            ],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def silence_some(self) -> None:
        """Stop the heartbeats of a few brokers."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def end(self) -> list[Answer]:
        """Stop all; return the answers in the order of the brokers."""
        out, _ = self._process.communicate(timeout=60)
        rows = (line.split() for line in out.splitlines())
        return [Answer(float(due), float(waited), int(code)) for due, waited, code in rows]


def measure(size: Size, controllers: int) -> Measured:
    """Measure a quorum of controllers with metadata of this size."""
    with tempfile.TemporaryDirectory(prefix="spindle-scale-") as folder:
        cluster = Cluster(SpindleNode, Path(folder), controllers, CONTROLLER)
        cluster.configure({"metadata.log.max.record.bytes.between.snapshots": str(SNAPSHOT_BYTES)})
        cluster.format()
        measured = Measured(size, controllers)
        _write_metadata(measured, cluster)
        try:
            _Run(measured, cluster).run()
        finally:
            cluster.remove()
    return measured


def _write_metadata(measured: Measured, cluster: Cluster) -> None:
    image = make_image(measured.size)
    for node in cluster.nodes:
        begin_cpu_s = time.process_time()
        size_bytes = write_image(image, metadata_folder(node))
        measured.figures["snapshot encoded, CPU-s"] = time.process_time() - begin_cpu_s
    measured.figures["snapshot, MiB"] = size_bytes / MIB


def metadata_folder(node: Node) -> Path:
    return node.log_dirs[0] / "__cluster_metadata-0"


def newest_snapshot(node: Node) -> OffsetAndEpoch:
    """Return the id of the newest complete snapshot."""
    names = (path.name for path in metadata_folder(node).iterdir())
    return max(filter(None, map(parse_snapshot_file_name, names)))


class _Run:
    """The life of a cluster whose figures are measured."""

    def __init__(self, measured: Measured, cluster: Cluster) -> None:
        self._measured = measured
        self._cluster = cluster
        self._changes = Changes(cluster.controllers)
        self._windows: dict[str, tuple[float, float]] = {}

    def run(self) -> None:
        heartbeats = Heartbeats(self._cluster.controllers, self._measured.size.brokers)
        try:
            self._start()
            with self._window("at rest"):
                time.sleep(REST_S)
            with self._window("a snapshot is written"):
                self._write_snapshot()
            with self._window("brokers are fenced"):
                heartbeats.silence_some()
                time.sleep(SESSION_S + REST_S)
            with self._window("the active controller is killed and comes back"):
                self._kill_active()
        finally:
            beats = heartbeats.end()
            self._changes.end()
        for name, (begin_s, end_s) in self._windows.items():
            for kind, answers in (("heartbeats", beats), ("changes", self._changes.answers)):
                latencies = Latencies.of(between(answers, begin_s, end_s))
                self._measured.latencies[f"{name}: {kind}"] = latencies

    @contextlib.contextmanager
    def _window(self, name: str) -> Iterator[None]:
        begin_s = time.monotonic()
        yield
        self._windows[name] = begin_s, time.monotonic()

    def _start(self) -> None:
        figures, cluster = self._measured.figures, self._cluster
        with self._window("start"):
            begin_s = time.monotonic()
            for node in cluster.nodes:
                node.start(wait=False)
            self._changes.start()
            figures["loaded, s"] = self._changes.first_after(begin_s)
            figures["loaded, CPU-s"] = cluster.cpu_s() / len(cluster.nodes)
        time.sleep(REST_S)
        figures["resident, MiB"] = cluster.rss_bytes() / len(cluster.nodes) / MIB

    def _write_snapshot(self) -> None:
        """Create topics of more bytes than may lie between two snapshots."""
        begin_s = time.monotonic()
        topics = [
            CreateTopicsRequest.CreatableTopic(
                name=f"more-{number}", num_partitions=100, replication_factor=3
            )
            for number in range(NEW_TOPICS)
        ]
        request = CreateTopicsRequest(topics=topics, timeout_ms=60_000)
        code = self._changes.request(request, CreateTopicsResponse)
        if code:
            raise RuntimeError(f"the topics were not created: error {code}")
        for node in self._cluster.nodes:
            while newest_snapshot(node) <= SNAPSHOT_ID:
                if time.monotonic() > begin_s + LIMIT_S:
                    raise RuntimeError("no snapshot was written")
                time.sleep(0.01)
        self._measured.figures["snapshot written, s"] = time.monotonic() - begin_s

    def _kill_active(self) -> None:
        victim = self._cluster.node(self._changes.active)
        begin_s = time.monotonic()
        victim.kill()
        if len(self._cluster.nodes) == 1:
            victim.start(wait=False)
        seconds = self._changes.first_after(begin_s)
        self._measured.figures["change after kill -9, s"] = seconds
        if len(self._cluster.nodes) > 1:
            victim.start(wait=False)
            time.sleep(REST_S + self._measured.figures["loaded, s"])


def _change() -> IncrementalAlterConfigsRequest:
    config = IncrementalAlterConfigsRequest.AlterConfigsResource.AlterableConfig(
        name="retention.ms", config_operation=_SET, value=str(time.time_ns() // 1000)
    )
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=_TOPIC_RESOURCE, resource_name=f"{TOPIC}-0", configs=[config]
    )
    return IncrementalAlterConfigsRequest(resources=[resource])


def end_in_order() -> None:
    """Let SIGTERM end this program as Ctrl-C does: the nodes end and their folders are removed."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def main() -> None:
    end_in_order()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=1_000_000)
    parser.add_argument("--brokers", type=int, default=1_000)
    parser.add_argument("--controllers", type=int, default=1)
    options = parser.parse_args()
    measured = measure(Size(options.partitions, options.brokers), options.controllers)
    for name, figure in measured.figures.items():
        print(f"{name:40} {figure:10.2f}")
    print(f"{'':62} p50      p99      max   ms at most: {' '.join(map(str, BOUNDS_MS))} above")
    for name, latencies in measured.latencies.items():
        row = f"{latencies.p50_ms:8.1f} {latencies.p99_ms:8.1f} {latencies.max_ms:8.1f}"
        print(f"{name:56} {row}   {latencies.counts} errors {latencies.error_codes}")


if __name__ == "__main__":
    main()
