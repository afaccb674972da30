"""`spindle plan` and `spindle drain` on three nodes of either program.

Kafka's own tool executes the files of the plans.

The tests depend on their order.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from peers.clients import settings
from peers.execution_process import ExecutionProcess
from peers.java_tools import JavaTools
from peers.node import KafkaNode, Node, SpindleNode
from peers.trio import Trio

from spindle.cli.main import run

pytestmark = pytest.mark.timeout(300)

TOPIC = "planned"
PARTITIONS = 8
LIMIT_S = 60.0
RECORD = b"." * 4000
LIMITS = ("--capacity", "60MiB", "--throttle", "20MiB")


@pytest.fixture(scope="module", params=[SpindleNode, KafkaNode], ids=["spindle", "kafka"])
def trio(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, java_tools: JavaTools
) -> Iterator[Trio]:
    kind: type[Node] = request.param
    # The broker that is taken out has replicas of this topic, too.
    overrides = {"offsets.topic.replication.factor": "2"}
    cluster = Trio(kind, tmp_path_factory.mktemp("plans"), java_tools, overrides)
    try:
        cluster.start()
        cluster.wait_ready()
        fill(cluster)
        yield cluster
    finally:
        cluster.remove()


def fill(trio: Trio) -> None:
    """Write partitions of very different sizes: half a megabyte times their number."""
    create = ("--partitions", str(PARTITIONS), "--replication-factor", "2")
    trio.run("topics", "--create", "--topic", TOPIC, *create).check()
    producer = Producer(settings(trio.nodes[1], acks="all", linger_ms=20))
    for partition in range(PARTITIONS):
        for _ in range(125 * partition):
            producer.produce(TOPIC, RECORD, partition=partition)
        assert producer.flush(LIMIT_S) == 0


def plan(trio: Trio, capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    """Return the JSON document of a plan."""
    capsys.readouterr()
    code = run(("plan", *words, "-b", trio.bootstrap, "--json", *LIMITS))
    shown = capsys.readouterr()
    assert code == 0, shown.err
    plan: dict[str, Any] = json.loads(shown.out)
    return plan


def execute(trio: Trio, file: Path) -> None:
    """Carry out a file with kafka-reassign-partitions, and wait for its end."""
    words = ("reassign-partitions", "--reassignment-json-file", str(file))
    limits = ("--throttle", "20971520", "--replica-alter-log-dirs-throttle", "20971520")
    trio.run(*words, "--execute", *limits).check()
    trio.until(
        lambda lines: (
            not any(
                word in line
                for line in lines
                for word in ("in progress", "rather than", "not being")
            )
        ),
        *(*words, "--verify"),
    )


def held(trio: Trio) -> dict[str, list[str]]:
    """Return the replicas in each directory, by Kafka's tool."""
    done = trio.run("log-dirs", "--describe").check()
    return {
        log_dir["logDir"]: sorted(replica["partition"] for replica in log_dir["partitions"])
        for broker in json.loads(done.lines[-1])["brokers"]
        for log_dir in broker["logDirs"]
    }


def test_a_directory_is_drained_and_refilled_by_kafkas_tool(
    trio: Trio, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    before = held(trio)
    path = str(trio.nodes[2].log_dirs[1])
    folder = tmp_path / "drain"
    page = tmp_path / "drain.html"
    files = ("--out", str(folder), "--html", str(page))
    planned = plan(trio, capsys, "drain", f"2:{path}", *files)
    moves = [move for round_ in planned["rounds"] for move in round_["moves"]]
    assert len(moves) == len(before[path]) > 0
    assert planned["movedBytes"] == planned["lowerBoundBytes"]
    assert f"cluster {planned['clusterId']}" in page.read_text()
    assert f"Empty 2:{path}" in page.read_text()
    for number in range(len(planned["rounds"])):
        execute(trio, folder / f"round-{number + 1:04d}.json")
    after = held(trio)
    assert after[path] == []
    for move in moves:
        assert f"{move['topic']}-{move['partition']}" in after[move["toPath"]]
    for file in sorted(folder.glob("rollback-0*.json"), reverse=True):
        execute(trio, file)
    assert held(trio) == before


def test_a_cluster_is_balanced_as_predicted(
    trio: Trio, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = tmp_path / "balance"
    planned = plan(trio, capsys, "balance", "--out", str(folder))
    for number in range(len(planned["rounds"])):
        execute(trio, folder / f"round-{number + 1:04d}.json")
    if planned["preferredLeaders"]:
        execute(trio, folder / "leaders.json")
    again = plan(trio, capsys, "balance")
    assert [leader["before"] for leader in again["leaders"]] == [
        leader["after"] for leader in planned["leaders"]
    ]
    assert again["spreadBefore"] == pytest.approx(planned["spreadAfter"], abs=0.01)
    assert again["spreadBefore"] <= planned["spreadBefore"]


def directory_of_most(trio: Trio, number: int) -> str:
    """Return the directory of a broker that has the most replicas."""
    replicas_by_path = held(trio)
    return max(map(str, trio.nodes[number].log_dirs), key=lambda path: len(replicas_by_path[path]))


def drain(trio: Trio, folder: Path, place: str, throttle: str) -> ExecutionProcess:
    """Start `spindle drain` in a process of its own."""
    limits = ("--capacity", "60MiB", "--throttle", throttle, "--max-moves-per-dir", "2")
    return ExecutionProcess(
        trio.bootstrap, "drain", place, *limits, "--state", str(folder / "drain.json")
    )


def traces(trio: Trio) -> str:
    """Return the dynamic settings of brokers and of the topic that a drain may leave behind."""
    configs = [
        trio.run("configs", "--describe", "--entity-type", "topics", "--entity-name", TOPIC).stdout
    ]
    for number in trio.nodes:
        entity = ("--entity-type", "brokers", "--entity-name", str(number))
        configs.append(trio.run("configs", "--describe", *entity).stdout)
    return "".join(configs)


def test_a_drain_that_is_interrupted_leaves_no_trace(trio: Trio, tmp_path: Path) -> None:
    path = directory_of_most(trio, 2)
    process = drain(trio, tmp_path, f"2:{path}", "100KiB")
    process.until("moving ")
    assert f"cordoned.log.dirs={path}" in traces(trio)
    process.interrupt()
    code, out = process.ended()
    assert (code, "is cancelled" in out) == (130, True), out
    text = traces(trio)
    assert "throttled" not in text
    assert f"cordoned.log.dirs={path}" not in text
    assert not list(tmp_path.iterdir())
    lines = trio.run("reassign-partitions", "--list").check().stdout
    assert "No partition reassignments found." in lines


def test_a_drain_that_is_killed_continues(trio: Trio, tmp_path: Path) -> None:
    path = directory_of_most(trio, 2)
    assert held(trio)[path]
    process = drain(trio, tmp_path, f"2:{path}", "100KiB")
    process.until("moving ")
    process.kill()
    assert (tmp_path / "drain.json").exists()
    code, out = drain(trio, tmp_path, f"2:{path}", "20MiB").ended()
    assert code == 0, out
    assert "has no replicas and is cordoned" in out
    assert held(trio)[path] == []
    text = traces(trio)
    assert "throttled" not in text
    assert f"cordoned.log.dirs={path}" in text
    assert not list(tmp_path.iterdir())
    assert counted(trio) == sum(125 * partition for partition in range(PARTITIONS))
    entity = ("--entity-type", "brokers", "--entity-name", "2")
    trio.run("configs", "--alter", *entity, "--delete-config", "cordoned.log.dirs").check()


def test_a_balance_that_is_interrupted_and_killed_continues(
    trio: Trio, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The drain before has left a directory empty."""

    def balance(throttle: str) -> ExecutionProcess:
        limits = ("--capacity", "24MiB", "--throttle", throttle, "--max-moves-per-dir", "2")
        state = ("--state", str(tmp_path / "balance.json"))
        return ExecutionProcess(trio.bootstrap, "balance", *limits, *state)

    process = balance("100KiB")
    process.until("moving ")
    process.interrupt()
    code, out = process.ended()
    assert (code, "the balance is cancelled" in out) == (130, True), out
    assert "throttled" not in traces(trio)
    assert not list(tmp_path.iterdir())
    process = balance("100KiB")
    process.until("moving ")
    process.kill()
    assert (tmp_path / "balance.json").exists()
    code, out = balance("20MiB").ended()
    assert code == 0, out
    assert "nothing is left to move" in out
    assert "throttled" not in traces(trio)
    assert not list(tmp_path.iterdir())
    assert not plan(trio, capsys, "balance", "--capacity", "24MiB")["rounds"]
    assert counted(trio) == sum(125 * partition for partition in range(PARTITIONS))


def counted(trio: Trio) -> int:
    """Return the records of the topic, all of them read."""
    consumer = Consumer(settings(trio.nodes[1], group_id="count"))
    places = [TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)]
    ends = [consumer.get_watermark_offsets(place, LIMIT_S)[1] for place in places]
    consumer.assign(places)
    counted = 0
    while counted < sum(ends):
        message = consumer.poll(LIMIT_S)
        assert message is not None, f"{counted} of {sum(ends)} records"
        assert message.error() is None, message.error()
        counted += 1
    consumer.close()
    return counted


def test_a_cordoned_directory_receives_nothing(
    trio: Trio, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(trio.nodes[1].log_dirs[0])
    entity = ("--entity-type", "brokers", "--entity-name", "1")
    trio.run("configs", "--alter", *entity, "--add-config", f"cordoned.log.dirs={path}").check()
    planned = plan(trio, capsys, "decommission", "3")
    while not any(directory["isCordoned"] for directory in planned["directories"]):
        # The broker that was asked had not heard of the cordon yet.
        planned = plan(trio, capsys, "decommission", "3")
    assert [
        directory["path"] for directory in planned["directories"] if directory["isCordoned"]
    ] == [path]
    moves = [move for round_ in planned["rounds"] for move in round_["moves"]]
    assert moves
    assert path not in {move["toPath"] for move in moves}
    assert all(
        directory["usedBytesAfter"] == 0
        for directory in planned["directories"]
        if directory["isEmptied"]
    )


def test_a_dead_broker_is_planned_empty(trio: Trio, capsys: pytest.CaptureFixture[str]) -> None:
    trio.nodes[3].kill()
    planned = plan(trio, capsys, "decommission", "3")
    assert any(
        "broker 3 does not report its directories" in remark for remark in planned["remarks"]
    )
    assert {move["fromBroker"] for round_ in planned["rounds"] for move in round_["moves"]} == {3}
