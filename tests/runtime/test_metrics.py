"""The metrics listener: its pages, and that no client can harm the node through it."""

import asyncio
import errno
import json
import math
import os
import random
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from metadata_files import directory_id
from metrics_scrape import asking, get, scrape
from node_harness import Home, batch_of, connected, running, thread_of
from waiting import until

from documents.reference import PATHS, metrics_page
from spindle.common.errors import ConfigError, CorruptLog, LogDirectoryFailed
from spindle.common.ports import File
from spindle.disks.io_counts import OperationCounts, bucket_limit_ns
from spindle.runtime.disks.instrumented_files import InstrumentedFileSystem
from spindle.runtime.metrics import http_server
from spindle.runtime.metrics.http_server import MetricsServer
from spindle.runtime.metrics.replicas import count_replicas
from spindle.runtime.metrics.requests import RequestMetrics, RequestTimes
from spindle.runtime.node import Node
from spindle.serving.traffic import Traffic

# -- the node


async def test_a_node_counts_what_its_clients_do(tmp_path: Path) -> None:
    home = Home(tmp_path, spindle_metrics_listener="127.0.0.1:0").format()
    async with running(home) as node, connected(node) as client:
        await client.create_topic("a", partitions=3)
        batch = batch_of(b"x" * 1000, b"y")
        assert (await client.produce("a", 0, batch)).error_code == 0
        assert (await client.produce("a", 1, batch)).error_code == 0
        assert (await client.produce("a", 1, batch[:-1] + b"?")).error_code != 0
        assert len((await client.fetch("a", 0, 0)).records) == len(batch)
        samples = await scrape(node)
        assert node.metrics_server is not None
        ready = await get(node.metrics_server.port, asking("/ready"))
        health = await get(node.metrics_server.port, asking("/health"))
    assert (ready[0], health[0]) == (200, 200)
    topic = (("topic", "a"),)
    counted = {
        name: samples[f"kafka_server_broker_topic_metrics_{name}_total", topic]
        for name in (
            "bytes_in",
            "bytes_out",
            "messages_in",
            "total_produce_requests",
            "failed_produce_requests",
            "total_fetch_requests",
        )
    }
    assert counted == {
        "bytes_in": 2 * len(batch),
        "bytes_out": len(batch),
        "messages_in": 4,
        "total_produce_requests": 3,
        "failed_produce_requests": 1,
        "total_fetch_requests": 1,
    }
    produce = (("listener", "PLAINTEXT"), ("request", "Produce"))
    times = "kafka_network_request_metrics_total_time_seconds"
    assert samples[f"{times}_count", produce] == 3
    medians = [
        value
        for (name, labels), value in samples.items()
        if name == times and ("quantile", "0.5") in labels and ("request", "Produce") in labels
    ]
    assert len(medians) == 1
    assert 0 < medians[0] <= samples[f"{times}_sum", produce]
    expected = {
        "kafka_server_replica_manager_partition_count": 3,
        "kafka_server_replica_manager_leader_count": 3,
        "kafka_server_replica_manager_offline_replica_count": 0,
        "kafka_server_replica_manager_under_replicated_partitions": 0,
        "kafka_controller_kafka_controller_active_controller_count": 1,
        "kafka_controller_kafka_controller_global_topic_count": 1,
        "kafka_controller_kafka_controller_global_partition_count": 3,
        "kafka_controller_kafka_controller_active_broker_count": 1,
        "kafka_controller_kafka_controller_offline_partitions_count": 0,
        "kafka_server_kafka_server_broker_state": 3,
        "kafka_server_socket_server_metrics_connection_count": 1,
        "kafka_server_socket_server_metrics_connection_creation_total": 1,
        "kafka_network_socket_server_memory_pool_used_bytes": 0,
        "kafka_network_socket_server_unsent_bytes": 0,
        "kafka_server_raft_metrics_current_leader": 1,
        "kafka_server_raft_metrics_number_of_voters": 1,
    }
    assert {name: samples[name, ()] for name in expected} == expected
    for path in home.directories:
        here = (("log_dir", str(path)),)
        assert samples["kafka_log_log_manager_log_directory_partition_count", here] == 1
        assert samples["kafka_log_log_manager_log_directory_offline", here] == 0
        total = samples["kafka_log_log_manager_log_directory_total_bytes", here]
        assert total >= samples["kafka_log_log_manager_log_directory_usable_bytes", here] > 0
    metadata = (("log_dir", str(home.directories[0])),)
    assert samples["kafka_log_log_flush_stats_log_flush_time_seconds_count", metadata] > 0
    assert samples["kafka_server_raft_metrics_current_state", (("state", "leader"),)] == 1


PROJECT = Path(__file__).parents[2]
DOCUMENT = PROJECT / "docs" / "reference" / "metrics.md"


async def test_a_node_shows_its_vote_its_features_and_its_event_loop(tmp_path: Path) -> None:
    home = Home(tmp_path, spindle_metrics_listener="127.0.0.1:0").format()
    async with running(home) as node:
        samples = await scrape(node)
    voted = (("directory_id", directory_id(home.directories[0])),)
    assert samples["kafka_server_raft_metrics_current_vote_directory_id", voted] == 1
    for name, level in (("minimum", 7), ("maximum", 33)):
        key = f"kafka_server_node_metrics_{name}_supported_level"
        assert samples[key, (("feature", "metadata.version"),)] == level
    assert samples["spindle_event_loop_cpu_time_seconds_total", ()] > 0
    expected = {
        "kafka_controller_kafka_controller_ignored_static_voters": 0,
        "kafka_server_metadata_loader_current_controller_id": 1,
        "kafka_server_raft_metrics_current_vote": 1,
        "kafka_server_raft_metrics_number_unknown_voter_connections": 0,
    }
    assert {name: samples[name, ()] for name in expected} == expected
    assert samples["process_resident_memory_bytes", ()] > 1e6


async def test_every_replica_has_its_rows(tmp_path: Path) -> None:
    """Under a path whose characters the format wants escaped."""
    odd = tmp_path / 'a "disk" of mine'
    odd.mkdir()

    home = Home(odd, spindle_metrics_listener="127.0.0.1:0").format()
    async with running(home) as node, connected(node) as client:
        await client.create_topic("a", partitions=3)
        batch = batch_of(b"x", b"y")
        for number in range(3):
            assert (await client.produce("a", number, batch)).error_code == 0
        samples = await scrape(node, "/metrics/partitions")
        assert node.broker is not None
        dirs = {
            partition.topic_partition.partition: partition.directory.path
            for partition in node.broker.replicas
        }
        assert set(dirs.values()) == set(map(str, home.directories))
        thread_of(node, dirs[0]).fail("unplugged")
        await asyncio.sleep(0)
        later = await scrape(node, "/metrics/partitions")
    log = {
        (name, labels): value
        for (name, labels), value in samples.items()
        if name.startswith("kafka_log_log_")
    }
    expected = {"size_bytes": len(batch), "num_log_segments": 1, "log_end_offset": 2}
    for number, path in dirs.items():
        labels = (("log_dir", path), ("partition", str(number)), ("topic", "a"))
        for name, value in {**expected, "log_start_offset": 0}.items():
            assert log.pop((f"kafka_log_log_{name}", labels)) == value
    assert not log
    led = (("partition", "0"), ("topic", "a"))
    health = {
        "replicas_count": 1,
        "in_sync_replicas_count": 1,
        "under_replicated": 0,
        "under_min_isr": 0,
        "at_min_isr": 1,
        "last_stable_offset_lag": 0,
    }
    for name, value in health.items():
        assert samples[f"kafka_cluster_partition_{name}", led] == value
    assert {dict(labels)["partition"] for _, labels in later} == {"1", "2"}


async def test_every_metric_is_documented_and_every_documented_metric_is_there(
    tmp_path: Path,
) -> None:
    bodies: list[str] = []

    home = Home(tmp_path, spindle_metrics_listener="127.0.0.1:0").format()
    async with running(home) as node:
        assert node.metrics_server is not None
        port = node.metrics_server.port
        bodies.extend([(await get(port, asking(path)))[2].decode() for path in PATHS])
    page = DOCUMENT.read_text()
    assert page == metrics_page(page, bodies), "make docs-reference writes it again"


DASHBOARD = PROJECT / "deploy" / "grafana-disks.json"


def test_every_metric_of_the_dashboard_is_documented() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    documented = {
        line.split("`")[1]: line.split("|")[2].strip()
        for line in DOCUMENT.read_text().splitlines()
        if line.startswith("| `")
    }
    samples = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}
    known = {name + suffix for name, kind in documented.items() for suffix in samples.get(kind, ())}
    variables = dashboard["templating"]["list"]
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    asked += [variable["query"]["query"] for variable in variables if variable["type"] == "query"]
    named = {name for text in asked for name in re.findall(r"(?:kafka|spindle)_\w+", text)}
    assert len(named) > 15
    assert named <= known
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)


async def test_a_look_at_many_replicas_lets_others_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spindle.serving.cooperative._SLICE_S", 0.0)

    home = Home(tmp_path, spindle_metrics_listener="127.0.0.1:0").format()
    async with running(home) as node, connected(node) as client:
        await client.create_topic("a", partitions=64)
        assert node.broker is not None
        for number in range(64):
            # Waits for the replica, which is still being made.
            await client.produce("a", number, batch_of(b"x"))
        counting = asyncio.ensure_future(count_replicas(node.broker.replicas, 0))
        turns = 0
        while not counting.done():
            turns += 1
            await asyncio.sleep(0)
        counts = counting.result()
        assert (sum(counts.directories.partitions.values()), counts.leading) == (64, 64)
        assert turns >= 4


async def test_a_dead_directory_and_a_deleted_topic_are_seen(tmp_path: Path) -> None:
    home = Home(tmp_path, spindle_metrics_listener="127.0.0.1:0").format()
    async with running(home) as node, connected(node) as client:
        await client.create_topic("a", partitions=3)
        await client.produce("a", 0, batch_of(b"x"))
        dead = str(home.directories[1])
        thread_of(node, dead).fail("unplugged")
        await asyncio.sleep(0)
        samples = await scrape(node)
        assert samples["kafka_log_log_manager_offline_log_directory_count", ()] == 1
        offline = "kafka_log_log_manager_log_directory_offline"
        assert samples[offline, (("log_dir", dead),)] == 1
        assert (
            "kafka_log_log_manager_log_directory_total_bytes",
            (("log_dir", dead),),
        ) not in (samples)
        assert samples["kafka_server_replica_manager_offline_replica_count", ()] == 1
        assert samples["kafka_server_replica_manager_leader_count", ()] == 2
        failure = "kafka_log_log_manager_log_directory_failure"
        assert samples[failure, (("log_dir", dead), ("reason", "unplugged"))] == 1


async def test_a_cordon_has_its_cause(tmp_path: Path) -> None:
    cordoned = str(tmp_path / "disk2")
    home = Home(
        tmp_path, cordoned_log_dirs=cordoned, spindle_metrics_listener="127.0.0.1:0"
    ).format()
    async with running(home) as node:
        samples = await scrape(node)
        prefix = "kafka_log_log_manager"
        cause = (("cause", "configuration"), ("log_dir", cordoned))
        assert samples[f"{prefix}_log_directory_cordon_cause", cause] == 1
        assert samples[f"{prefix}_cordoned_log_directory_count", ()] == 1


async def test_a_node_is_ready_only_while_it_serves(tmp_path: Path) -> None:
    home = Home(tmp_path, spindle_metrics_listener="127.0.0.1:0").format()
    node = Node(home.config())
    assert node.unready_reason() == "starting"
    try:
        await node.start()
        assert node.unready_reason() is None
        node.fail("the end")
        assert node.metrics_server is not None
        status, _, body = await get(node.metrics_server.port, asking("/ready"))
        assert (status, body) == (503, b"the end\n")
        assert (await get(node.metrics_server.port, asking("/health")))[0] == 200
    finally:
        await node.stop()


async def test_without_the_key_nothing_is_served(tmp_path: Path) -> None:
    async with running(Home(tmp_path).format()) as node:
        assert node.metrics_server is None


@pytest.mark.parametrize("value", ["9404", "host", ":9404", "a:b", "host:70000", "a:1,b:2"])
def test_a_bad_address_is_refused_by_name(tmp_path: Path, value: str) -> None:
    home = Home(tmp_path, spindle_metrics_listener=value)
    with pytest.raises(ConfigError, match=r"spindle\.metrics\.listener"):
        home.config()


# -- hostile HTTP


@asynccontextmanager
async def metrics_server(
    timeout_s: float = 5.0,
) -> AsyncIterator[tuple[MetricsServer, dict[str, int]]]:
    """Run a scenario against a server alone; how often it rendered."""
    calls = {"rendered": 0}

    async def render() -> bytes:
        calls["rendered"] += 1
        await asyncio.sleep(0.01)
        return b"x" * 3_000_000 if calls["rendered"] > 1 else b"metrics\n"

    server = MetricsServer("127.0.0.1", 0, {"/metrics": render}, lambda: None, timeout_s)
    await server.start()
    try:
        yield server, calls
        assert (await get(server.port, asking("/health")))[0] == 200
    finally:
        await server.stop()


async def test_bad_requests_get_answers() -> None:
    async with metrics_server() as (server, _):
        cases = {
            b"GET /nowhere HTTP/1.1\r\n\r\n": 404,
            b"POST /metrics HTTP/1.1\r\n\r\n": 405,
            b"GET /metrics\r\n\r\n": 400,
            b"\0\1\2\xff\r\n\r\n": 400,
            b"GET /health HTTP/1.1\r\nX: " + b"y" * 20_000 + b"\r\n\r\n": 431,
            b"GET /health?a=b HTTP/1.0\r\n\r\n": 200,
        }
        for request, expected in cases.items():
            status, head, _ = await get(server.port, request)
            assert status == expected, request[:40]
            assert b"Connection: close" in head
        status, head, body = await get(server.port, asking("/health", "HEAD"))
        assert (status, body) == (200, b"")
        assert b"Content-Length: 6" in head


async def test_a_silent_or_stalled_client_is_disconnected() -> None:
    async with metrics_server(timeout_s=0.05) as (server, _):
        await get(server.port, asking("/metrics"))
        silent, _ = await asyncio.open_connection("127.0.0.1", server.port)
        half, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET /hea")
        greedy, taker = await asyncio.open_connection("127.0.0.1", server.port, limit=1)
        taker.write(asking("/metrics"))
        assert await silent.read() == b""
        assert await half.read() == b""
        await until(lambda: not server.connection_count)
        writer.close()
        taker.close()
        del greedy


async def test_many_at_once_share_one_rendering_and_have_a_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_server, "_MAX_CONNECTIONS", 8)

    async with metrics_server() as (server, calls):

        async def ask() -> bool:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(asking("/metrics"))
            try:
                return (await reader.read()).startswith(b"HTTP/1.1 200")
            except ConnectionError:
                return False
            finally:
                writer.close()

        served = await asyncio.gather(*(ask() for _ in range(20)))
        assert 1 <= sum(served) <= 8
        await until(lambda: not server.connection_count)
    assert calls["rendered"] <= 8


async def test_a_port_in_use_is_a_configuration_error() -> None:
    async with metrics_server() as (server, _):

        async def render() -> bytes:
            return b""

        second = MetricsServer("127.0.0.1", server.port, {"/metrics": render}, lambda: None)
        with pytest.raises(ConfigError, match=str(server.port)):
            await second.start()


# -- counting


@given(st.lists(st.floats(1e-7, 3000), min_size=1, max_size=300))
def test_quantiles_are_right_to_a_few_percent(times_s: list[float]) -> None:
    times = RequestTimes("Produce", "PLAINTEXT")
    for elapsed_s in times_s:
        times.observe(elapsed_s)
    ordered = sorted(times_s)
    for part in (0.5, 0.95, 0.99, 0.999):
        exact = ordered[math.ceil(part * len(ordered)) - 1]
        assert times.quantiles_s([part], 0.0) == [pytest.approx(exact, rel=0.04)]


def test_any_time_has_a_bucket() -> None:
    times = RequestTimes("Produce", "PLAINTEXT")
    for elapsed_s in (-1.0, 0.0, 1e-300, 5e-8, 1e9, math.inf):
        times.observe(elapsed_s)
    low, high = times.quantiles_s([0.5, 1.0], 0.0)
    assert times.count == 6
    assert 0 < low < 1e-7
    assert high > 3000


def test_quantiles_forget_after_two_windows() -> None:
    times = RequestTimes("Produce", "PLAINTEXT")
    assert times.quantiles_s([0.5], 0.0) == [0.0]
    times.observe(1.0)
    for now_s, is_remembered in ((1, True), (60, True), (90, True), (121, True), (190, False)):
        assert (times.quantiles_s([0.5], now_s)[0] > 0) == is_remembered, now_s
    assert (times.count, times.total_s) == (1, 1.0)


def test_an_api_is_counted_once_per_listener() -> None:
    metrics = RequestMetrics()
    assert metrics.of("Fetch", "A") is metrics.of("Fetch", "A")
    assert metrics.of("Fetch", "A") is not metrics.of("Fetch", "B")


def test_deleted_topics_stay_in_the_total() -> None:
    traffic = Traffic()
    traffic.of("a").bytes_in += 5
    traffic.of("b").bytes_in += 7
    traffic.forget(["a", "never heard of"])
    traffic.of("a").bytes_in += 1
    assert traffic.snapshot().total().bytes_in == 13
    assert {name: t.bytes_in for name, t in traffic.by_topic.items()} == {"a": 1, "b": 7}


def test_operations_are_counted_and_timed_by_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [str(tmp_path / name) for name in ("a", "ab")]
    files = InstrumentedFileSystem(names)
    for name in names:
        Path(name).mkdir()
    rest = random.Random(1).randbytes(100)
    for path in (f"{names[0]}/x", f"{names[1]}/y", f"{names[1]}/z", str(tmp_path / "elsewhere")):
        file = files.open(path, create=True)
        file.append([rest, rest])
        file.pwrite(rest[:7], 0)
        file.sync()
        assert file.pread(300, 100) == rest
        file.close()
    first, second = map(files.of, names)
    assert (first.syncs.count, second.syncs.count) == (1, 2)
    assert (first.writes.count, first.writes.size_bytes) == (2, 207)
    assert (second.reads.count, second.reads.size_bytes) == (2, 200)
    assert 0 < second.syncs.take_longest_ns() <= second.syncs.total_ns
    assert second.syncs.take_longest_ns() == 0


@pytest.mark.parametrize(
    ("call", "work", "doing"),
    [
        ("fdatasync", lambda file: file.sync(), "syncing"),
        ("pread", lambda file: file.pread(1, 0), "reading"),
        ("pwritev", lambda file: file.append([b"x"]), "writing"),
        ("pwrite", lambda file: file.pwrite(b"x", 0), "writing"),
    ],
)
def test_a_failed_operation_is_counted_and_names_itself(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    call: str,
    work: Callable[[File], object],
    doing: str,
) -> None:
    files = InstrumentedFileSystem([str(tmp_path)])
    io = files.of(str(tmp_path))

    def unplugged(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, call, unplugged)
    file = files.open(f"{tmp_path}/0.log", create=True)
    with pytest.raises(OSError, match="Input/output error") as raised:
        work(file)
    file.close()
    failure = LogDirectoryFailed(str(tmp_path), raised.value)
    assert failure.reason == f"EIO while {doing} 0.log"
    every = (io.reads, io.writes, io.syncs)
    assert sum(counts.errors for counts in every) == 1
    assert sum(counts.count for counts in every) == 0


@pytest.mark.parametrize(
    ("cause", "reason"),
    [
        ("the disk has not answered for 60 s", "the disk has not answered for 60 s"),
        (FileNotFoundError(errno.ENOENT, "No such file", "/d/t-0/x"), "ENOENT on t-0/x"),
        (FileNotFoundError(errno.ENOENT, "No such file", "/d"), "ENOENT on the directory"),
        (OSError(errno.EROFS, "Read-only file system"), "EROFS"),
        (OSError("odd"), "odd"),
        (OSError(99_999, "unheard of"), "error 99999"),
        (CorruptLog("/d/t-0/x", 7, "a bad number"), "t-0/x at byte 7: a bad number"),
    ],
)
def test_the_reason_of_a_failure_is_short(cause: BaseException | str, reason: str) -> None:
    assert LogDirectoryFailed("/d", cause).reason == reason


def test_a_failed_directory_reads_as_a_sentence() -> None:
    failure = LogDirectoryFailed("/d", OSError(errno.EIO, "Input/output error", "/d/t-0/x"))
    assert str(failure) == "log directory /d failed: Input/output error (EIO) on t-0/x"
    assert str(LogDirectoryFailed("/d", "it hangs")) == "log directory /d failed: it hangs"


@given(st.one_of(st.integers(0, 100), st.integers(0, 10**13)))
def test_a_bucket_is_a_quarter_of_an_octave(elapsed_ns: int) -> None:
    counts = OperationCounts()
    counts.observe(elapsed_ns, 3)
    bucket = counts.buckets.index(1)
    assert elapsed_ns < bucket_limit_ns(bucket)
    assert elapsed_ns < 8 or elapsed_ns >= bucket_limit_ns(bucket - 1)
    assert (counts.count, counts.total_ns, counts.size_bytes) == (1, elapsed_ns, 3)


async def test_the_work_of_a_directory_is_in_its_metrics(tmp_path: Path) -> None:
    home = Home(tmp_path, spindle_metrics_listener="127.0.0.1:0").format()
    async with running(home) as node, connected(node) as client:
        await client.create_topic("a", partitions=3)
        batch = batch_of(b"x" * 1000)
        before = await scrape(node)
        for number in range(3):
            assert (await client.produce("a", number, batch)).error_code == 0
            assert len((await client.fetch("a", number, 0)).records) == len(batch)
        after = await scrape(node)
    prefix = "kafka_log_log_manager_log_directory"
    for path in map(str, home.directories):
        here = ("log_dir", path)

        def risen(name: str, *labels: tuple[str, str], here: tuple[str, str] = here) -> float:
            key = f"{prefix}_{name}", tuple(sorted((here, *labels)))
            return after[key] - before[key]

        assert risen("written_bytes_total") >= len(batch)
        assert risen("read_bytes_total") >= len(batch)
        assert risen("busy_time_seconds_total") > 0
        assert risen("io_time_seconds_count", ("operation", "write")) >= 1
        assert risen("io_time_seconds_sum", ("operation", "read")) > 0
        assert after[f"{prefix}_leader_count", (here,)] == 1
        assert after[f"{prefix}_queue_length", (here,)] == 0
        assert after[f"{prefix}_future_partition_count", (here,)] == 0
        times = [
            value
            for (name, labels), value in after.items()
            if name == f"{prefix}_io_time_seconds_bucket"
            and here in labels
            and ("operation", "write") in labels
        ]
        assert times == sorted(times)
        count = f"{prefix}_io_time_seconds_count", (here, ("operation", "write"))
        assert times[-1] == after[count]
