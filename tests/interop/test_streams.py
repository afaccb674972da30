"""A Kafka Streams application with exactly_once_v2: every record is counted once.

Its two instances and the brokers are killed meanwhile, and a log directory dies. Its group is a
classic one, or a streams group (KIP-1071), which then also has a repartition topic.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from peers.cluster import QUICK_FAILOVER, Cluster
from peers.committed_reader import committed_records, stable_end
from peers.failing_disk import FailingDisk, why_no_failing_disks
from peers.java_process import JavaProcess
from peers.java_tools import compiled_classes, run_in_new_jvm
from peers.node import KafkaNode, Node
from peers.paths import java_can_compile, streams_jars
from peers.steady_input import KEYS, SteadyInput
from waiting import wait_for

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(not java_can_compile(), reason="a development kit of Java is needed"),
]
PARTITIONS = 4
LIMIT_S = 90.0
STREAMS_GROUP_TIMES = {
    "group.streams.min.session.timeout.ms": "6000",
    "group.streams.session.timeout.ms": "6000",
    "group.streams.min.heartbeat.interval.ms": "500",
    "group.streams.heartbeat.interval.ms": "500",
}
SOURCE, TARGET, APPLICATION = "words", "counts", "counter"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[FailingDisk | None]:
    """Return a disk that can fail, or None where there are no loop devices."""
    if why_no_failing_disks():
        yield None
        return
    disk = FailingDisk(tmp_path / "disk")
    yield disk
    disk.remove()


@pytest.fixture
def cluster(
    tmp_path: Path, candidate_class: type[Node], disk: FailingDisk | None
) -> Iterator[Cluster]:
    """Run three nodes; the second directory of node 2 is on the disk."""
    overrides = {
        **QUICK_FAILOVER,
        **STREAMS_GROUP_TIMES,
        "min.insync.replicas": "2",
        "num.partitions": str(PARTITIONS),
    }
    program = "kafka" if candidate_class is KafkaNode else "spindle"
    cluster = Cluster(tmp_path / "nodes", [program] * 3, overrides)
    if disk is not None:
        cluster.seats[2].log_dirs[1] = disk.path
        cluster.seats[2].write_properties()
    with cluster:
        yield cluster


def instance(cluster: Cluster, folder: Path, number: int, protocol: str) -> JavaProcess:
    jars = streams_jars()
    classes = compiled_classes("streams", *sorted(jars.glob("*.jar")))
    return JavaProcess(
        folder / f"streams{number}.txt",
        "StreamsCount",
        cluster.bootstrap,
        SOURCE,
        TARGET,
        APPLICATION,
        str(folder / f"state{number}"),
        protocol,
        *(["regroups"] if protocol == "streams" else []),
        extra_path=os.pathsep.join([str(classes), f"{jars}/*"]),
    )


def wait_more(cluster: Cluster, records: int) -> None:
    """Return after this many more offsets of the output are stable."""
    wanted = stable_end(cluster.bootstrap, TARGET, PARTITIONS) + records
    wait_for(
        lambda: stable_end(cluster.bootstrap, TARGET, PARTITIONS),
        lambda end: end >= wanted,
        f"the application writes up to {wanted} records",
        limit_s=LIMIT_S,
        pause_s=0.1,
    )


def described(cluster: Cluster) -> str:
    """Return what Kafka's tool prints about the members of the streams group."""
    asked = ["--describe", "--members", "--verbose", "--group", APPLICATION]
    result = run_in_new_jvm("streams-groups", "--bootstrap-server", cluster.bootstrap, *asked)
    result.check()
    return result.stdout


def counts(cluster: Cluster) -> dict[bytes, list[int]]:
    """Return the counts of each key, in the order of the output."""
    counts: dict[bytes, list[int]] = defaultdict(list)
    for part in committed_records(cluster.bootstrap, TARGET, PARTITIONS).values():
        for record in part:
            key, value = record.key(), record.value()
            assert isinstance(key, bytes)
            assert value is not None
            counts[key].append(int(value))
    return counts


@pytest.mark.parametrize("protocol", ["classic", "streams"])
def test_every_record_is_counted_once(
    cluster: Cluster, disk: FailingDisk | None, tmp_path: Path, protocol: str
) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    new = [NewTopic(name, PARTITIONS, 3) for name in (SOURCE, TARGET)]
    for future in admin.create_topics(new).values():
        future.result(30)
    cluster.wait_in_sync([SOURCE, TARGET])
    instances = [instance(cluster, tmp_path, number, protocol) for number in (1, 2)]
    with instances[0], instances[1], SteadyInput(cluster.bootstrap, SOURCE, PARTITIONS) as written:
        wait_more(cluster, 200)
        if protocol == "streams":
            lines = described(cluster).splitlines()[1:]
            assert sum(" streams " in line and "ACTIVE: 0:[" in line for line in lines) == 2
        instances[0].restart()
        wait_more(cluster, 200)
        cluster.restart(1, is_killed=True)
        wait_more(cluster, 200)
        if disk is not None:
            disk.fail()
            wait_more(cluster, 200)
        instances[1].stop()
        instances[1].start()
        cluster.restart(3, is_killed=False)
        wait_more(cluster, 200)
    expected: Counter[bytes] = Counter()
    for values in written.written.values():
        for value in values:
            expected[f"key{int(value.split(b'-')[1]) % KEYS}".encode()] += 1
    with instances[0], instances[1]:
        wait_for(
            lambda: sum(map(len, counts(cluster).values())),
            lambda total: total >= expected.total(),
            f"{expected.total()} records are counted",
            limit_s=LIMIT_S,
            pause_s=0.5,
        )
    counted = counts(cluster)
    assert expected.total() > 1000
    assert counted == {key: list(range(1, count + 1)) for key, count in expected.items()}
