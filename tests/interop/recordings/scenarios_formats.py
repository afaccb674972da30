"""Formatting of log directories (KIP-631, KIP-853) and the first start of a node (KIP-858)."""

from __future__ import annotations

import shutil
from pathlib import Path

from recordings.metadata_log import Batch, read_snapshot
from recordings.record_lines import record_lines
from recordings.scenario import scenario
from recordings.stage import Stage

_FORMAT = "format -t <cluster> -c <n1.properties>"


def storage(stage: Stage, words: str) -> None:
    stage.tool("storage", words, server="-")


def bootstrap_records(stage: Stage) -> None:
    """Write down what the bootstrap snapshots of the directories say."""
    stage.names.learn_directories()
    for directory in stage.nodes[1].log_dirs:
        for path in sorted(directory.rglob("*.checkpoint")):
            stage.note(str(path))
            batches = [Batch(0, [entry]) for entry in read_snapshot(path)]
            for batch in batches:
                batch.entries[0].data.pop("lastContainedLogTimestamp", None)
            stage.lines += [f"  {line}" for line in record_lines(batches, stage.names)]


def without(stage: Stage, *keys: str, place: int = 3) -> None:
    """Take lines out of the meta.properties of a directory."""
    path = stage.nodes[1].log_dirs[place - 1] / "meta.properties"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if line.partition("=")[0] not in keys))


def empty(stage: Stage) -> None:
    for directory in stage.nodes[1].log_dirs:
        shutil.rmtree(directory, ignore_errors=True)


@scenario("01-format", directory_count=3)
def format_directories(stage: Stage) -> None:
    stage.step("static voters: format, the same again, --ignore-formatted, info")
    storage(stage, _FORMAT)
    stage.files(1)
    bootstrap_records(stage)
    storage(stage, _FORMAT)
    storage(stage, f"{_FORMAT} --ignore-formatted")
    storage(stage, "info -c <n1.properties>")

    stage.step("another cluster id, with and without --ignore-formatted")
    other = "format -t vPeOCWypqUOSepEvx0cbog -c <n1.properties>"
    storage(stage, other)
    storage(stage, f"{other} --ignore-formatted")

    stage.step("<n1d2> is empty: info, then --ignore-formatted")
    shutil.rmtree(stage.nodes[1].log_dirs[1])
    stage.nodes[1].log_dirs[1].mkdir()
    storage(stage, "info -c <n1.properties>")
    storage(stage, f"{_FORMAT} --ignore-formatted")

    stage.step("meta.properties of <n1d3> with another node.id, and without version and cluster.id")
    path = stage.nodes[1].log_dirs[2] / "meta.properties"
    path.write_text(path.read_text().replace("node.id=1", "node.id=7"))
    storage(stage, f"{_FORMAT} --ignore-formatted")
    storage(stage, "info -c <n1.properties>")
    path.write_text(path.read_text().replace("node.id=7", "node.id=1"))
    without(stage, "version", "cluster.id")
    storage(stage, f"{_FORMAT} --ignore-formatted")
    storage(stage, "info -c <n1.properties>")

    stage.step("releases and features")
    for flags in (
        "--release-version 4.0",
        "--release-version 3.9",
        "--release-version 9.9",
        "--feature group.version=9",
        "--feature no.such.version=1",
        "--feature metadata.version=25",
        "--feature group.version=0 --feature transaction.version=1",
        "--release-version 4.0 --feature share.version=1",
    ):
        empty(stage)
        storage(stage, f"{_FORMAT} {flags}")
    storage(stage, "version-mapping")
    storage(stage, "feature-dependencies --feature transaction.version=2")


@scenario("01-format-quorums", directory_count=2)
def format_quorums(stage: Stage) -> None:
    node = stage.nodes[1]
    stage.step("static voters with flags of voters in the log")
    there = "1@<n1c>:vPeOCWypqUOSepEvx0cbog"
    elsewhere = "9@<n1c>:vPeOCWypqUOSepEvx0cbog"
    for flags in ("--standalone", f"--initial-controllers {there}", "--no-initial-controllers"):
        empty(stage)
        storage(stage, f"{_FORMAT} {flags}")

    node.overrides["controller.quorum.voters"] = ""
    node.overrides["controller.quorum.bootstrap.servers"] = node.controller
    node.write_properties()
    for title, flags in (
        ("no static voters, no flag", ""),
        ("--standalone", "--standalone"),
        ("--standalone with kraft.version=0", "--standalone --feature kraft.version=0"),
        ("--initial-controllers naming this node", f"--initial-controllers {there}"),
        ("--initial-controllers naming another node", f"--initial-controllers {elsewhere}"),
        ("--initial-controllers without directory id", "--initial-controllers 1@<n1c>"),
        ("--initial-controllers without node", "--initial-controllers <n1c>"),
        ("--no-initial-controllers", "--no-initial-controllers"),
    ):
        stage.step(title)
        empty(stage)
        storage(stage, f"{_FORMAT} {flags}".rstrip())
        if any(path.is_dir() for path in node.log_dirs):
            stage.files(1)
            bootstrap_records(stage)

    stage.step("broker only, without flag and with --standalone")
    node.roles = ("broker",)
    node.write_properties()
    for flags in ("", " --standalone"):
        empty(stage)
        storage(stage, f"{_FORMAT}{flags}")


def spread(stage: Stage, topic: str) -> None:
    """Write down how many partitions of a topic are in the directories of node 1."""
    counts = [len(list(path.glob(f"{topic}-*"))) for path in stage.nodes[1].log_dirs]
    stage.note(f"partitions of {topic} in the directories: {sorted(counts)}")


def deleted(stage: Stage) -> list[Path]:
    return [path for place in stage.nodes[1].log_dirs for path in place.glob("*-delete")]


@scenario(
    "02-first-start",
    directory_count=3,
    overrides={
        "log.segment.delete.delay.ms": "1000",
        "log.initial.task.delay.ms": "300",
    },
)
def first_start(stage: Stage) -> None:
    stage.step("first start")
    stage.format()
    stage.start()
    stage.records()
    stage.files()

    stage.step("a topic of 6 partitions, then 8, then 4")
    stage.tool("topics", "--create --topic six --partitions 6 --replication-factor 1")
    stage.records(has_any_place=True)
    spread(stage, "six")
    stage.tool("topics", "--alter --topic six --partitions 8")
    stage.records(has_any_place=True)
    stage.tool("topics", "--alter --topic six --partitions 4")

    stage.step("topics that are refused")
    for words in (
        "--create --topic six --partitions 1",
        "--create --topic a --replication-factor 2",
        "--create --topic a --replica-assignment 9",
        "--create --topic a --replica-assignment 1:1",
        "--create --topic a --config no.such.key=1",
        "--create --topic a/b",
        "--create --topic a --partitions 0",
    ):
        stage.tool("topics", words)
    stage.records()

    stage.step("the topic is deleted and created again, with a configuration")
    stage.tool("topics", "--delete --topic six")
    stage.records()
    stage.wait(lambda: not deleted(stage))
    stage.tool("topics", "--create --topic six --partitions 1 --config retention.ms=86400000")
    stage.records(has_any_place=True)
    stage.tool("topics", "--describe --topic six")
    stage.place("six", 0, n1="d2")
    stage.skip_records()
    stage.wait(lambda: not deleted(stage))
    stage.produce("six", 0, 20)
    stage.files()

    stage.step("clean stop and start")
    stage.stop(1)
    stage.files()
    stage.start()
    stage.records()

    stage.step("kill -9 and start")
    stage.kill(1)
    stage.start()
    stage.leave_out_records("the session may expire before or after the broker asks again")
    stage.tool("topics", "--describe --topic six")
