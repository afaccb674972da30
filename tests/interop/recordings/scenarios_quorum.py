"""Snapshots of the metadata log (KIP-630) and controllers that join and leave (KIP-853)."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from recordings.metadata_log import FOLDER, Batch, read_batches, read_snapshot
from recordings.record_lines import record_lines
from recordings.scenario import scenario
from recordings.stage import Stage


def newest_snapshot(stage: Stage) -> None:
    """Write down the newest snapshot, as soon as it has all records.

    The records of a type, and topics, are in the order of a hash map; epochs of partitions depend
    on how many requests brokers needed.
    """
    folder = stage.controller.log_dirs[0] / FOLDER
    stage.settle()
    last = read_batches(folder)[-1]
    end = last.base_offset + len(last.entries)
    stage.wait(lambda: any(int(path.name[:20]) >= end for path in folder.glob("*-*.checkpoint")))
    entries = read_snapshot(max(folder.glob("*-*.checkpoint")))
    for entry in entries:
        entry.data.pop("lastContainedLogTimestamp", None)
        entry.data.pop("partitionEpoch", None)
    stage.names.learn_directories()
    lines = record_lines([Batch(0, [entry]) for entry in entries], stage.names)
    for _, run in groupby(lines, key=_group):
        stage.lines += sorted(run)


def _group(line: str) -> str:
    kind = line.split()[1]
    return "TOPIC_RECORD" if kind == "PARTITION_RECORD" else kind


@scenario(
    "10-snapshots",
    roles={1: "broker,controller", 2: "broker"},
    overrides={"metadata.log.max.snapshot.interval.ms": "1000"},
)
def snapshots(stage: Stage) -> None:
    stage.format()
    stage.start()
    stage.settle()
    stage.step("a snapshot of topics, configurations, quotas, users and cordons")
    stage.create("b", "1:2,2:1", n1="d1", n2="d2")
    stage.create("a", "2", n2="d1")
    for words in (
        "--entity-type topics --entity-name a --add-config retention.ms=1000000",
        "--entity-type clients --entity-name c1 --add-config producer_byte_rate=100000",
        "--entity-type users --entity-name alice --add-config "
        "SCRAM-SHA-256=[iterations=4096,password=secret]",
        "--entity-type brokers --entity-name 1 --add-config log.cleaner.threads=2",
        "--entity-type brokers --entity-name 2 --add-config cordoned.log.dirs=<n2d2>",
    ):
        stage.tool("configs", f"--alter {words}")
    stage.until(lambda state: state.brokers[2]["cordonedLogDirs"], "cordoned")
    newest_snapshot(stage)

    stage.step("after deletions")
    stage.tool("topics", "--delete --topic a")
    for words in (
        "--entity-type clients --entity-name c1 --delete-config producer_byte_rate",
        "--entity-type users --entity-name alice --delete-config SCRAM-SHA-256",
    ):
        stage.tool("configs", f"--alter {words}")
    newest_snapshot(stage)


def status(stage: Stage) -> None:
    stage.tool("metadata-quorum", "describe --status")


def add(stage: Stage, number: int) -> None:
    words = f"--command-config <n{number}.properties> add-controller"
    stage.tool("metadata-quorum", words, server="<n1c>")


def remove(stage: Stage, number: int, directory_id: str, server: str = "<n1c>") -> None:
    words = f"--controller-id {number} --controller-directory-id {directory_id}"
    stage.tool("metadata-quorum", f"remove-controller {words}", server=server)


_SERVERS = {
    "controller.quorum.voters": "",
    "controller.quorum.bootstrap.servers": "<n1c>,<n2c>,<n3c>",
}


@scenario(
    "11-dynamic-quorum",
    roles={1: "broker,controller", 2: "controller", 3: "controller"},
    directory_count=1,
    own_overrides={
        1: _SERVERS,
        2: _SERVERS,
        3: _SERVERS | {"controller.quorum.auto.join.enable": "true"},
    },
)
def dynamic_quorum(stage: Stage) -> None:
    stage.step("1 is formatted --standalone, the others --no-initial-controllers; 1 starts")
    stage.format(1, flags=["--standalone"])
    stage.format(2, 3, flags=["--no-initial-controllers"])
    stage.start(1)
    stage.records()
    status(stage)

    stage.step("2 starts: an observer")
    stage.start(2)
    stage.records()
    status(stage)

    stage.step("add-controller of 2, twice")
    add(stage, 2)
    stage.records()
    add(stage, 2)
    status(stage)
    stage.tool("features", "describe")

    stage.step("remove-controller: an unknown id, and another directory")
    remove(stage, 9, stage.directory_id(2, "d1"))
    remove(stage, 2, stage.directory_id(3, "d1"))
    stage.records()

    stage.step("3 starts, which joins by itself")
    stage.start(3)
    stage.wait(lambda: voters(stage) == {1, 2, 3})
    stage.records()
    status(stage)

    stage.step("3 is stopped, and its disk is lost: the new directory joins by itself")
    stage.stop(3)
    stage.files(3)
    stage.replace(3, 1)
    stage.format(3, flags=["--no-initial-controllers"])
    stage.start(3)
    stage.wait(lambda: voters(stage) == {1, 2, 3} and is_voter(stage, 3))
    stage.records()
    status(stage)

    stage.step("2 is removed, then the leader")
    remove(stage, 2, stage.directory_id(2, "d1"))
    stage.records()
    remove(stage, 1, stage.directory_id(1, "d1"))
    stage.controller = stage.nodes[3]
    stage.wait(lambda: voters(stage) == {3})
    stage.records()


def voters(stage: Stage) -> set[int]:
    """Return the voters of the last KRaftVoters record."""
    return {voter["voterId"] for voter in _voters(stage)}


def is_voter(stage: Stage, number: int) -> bool:
    """Return True if a node votes with the directory that it has now."""
    here = stage.directory_id(number, "d1")
    return any(voter["voterDirectoryId"] == here for voter in _voters(stage))


def _voters(stage: Stage) -> list[dict[str, Any]]:
    batches = read_batches(stage.controller.log_dirs[0] / FOLDER)
    records = [e.data for batch in batches for e in batch.entries if e.kind == "KRaftVoters"]
    return list(records[-1]["voters"]) if records else []
