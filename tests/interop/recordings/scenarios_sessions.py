"""Fencing and elections (KIP-631, KIP-966), and feature levels (KIP-584, KIP-1022)."""

from __future__ import annotations

import os
import signal

from recordings.scenario import scenario
from recordings.stage import Stage

_BROKERS = {1: "broker", 2: "broker", 3: "broker", 4: "controller"}


def describe(stage: Stage) -> None:
    stage.describe("e", "p")


def elect(stage: Stage, kind: str, topic: str) -> None:
    stage.tool("leader-election", f"--election-type {kind} --topic {topic} --partition 0")


@scenario("08-fencing", roles=_BROKERS, overrides={"min.insync.replicas": "2"})
def fencing(stage: Stage) -> None:
    stage.format()
    stage.start()
    stage.create("e", "1:2:3", n1="d1", n2="d1", n3="d1")
    stage.create("p", "3:2:1", n1="d1", n2="d1", n3="d1")
    stage.quietly("configs", "--alter --entity-type topics --entity-name e "
                  "--add-config min.insync.replicas=2")  # fmt: skip
    stage.quietly("configs", "--alter --entity-type topics --entity-name p "
                  "--add-config min.insync.replicas=2")  # fmt: skip
    stage.produce("e", 0, 20)
    stage.skip_records()

    stage.step("clean stop of 3")
    stage.stop(3)
    stage.fenced(3)
    stage.records()
    describe(stage)

    stage.step("3 is started again, and leads p again by a preferred election")
    stage.start(3)
    stage.records()
    elect(stage, "preferred", "p")
    elect(stage, "preferred", "p")
    elect(stage, "unclean", "p")
    stage.records()

    stage.step("kill -9 of 3")
    stage.kill(3)
    stage.fenced(3)
    stage.records()
    describe(stage)
    elect(stage, "preferred", "p")

    stage.step("3 is started: a new incarnation")
    stage.start(3)
    stage.records()
    describe(stage)

    stage.step("kill -9 of 3, started at once")
    stage.kill(3)
    stage.start(3)
    stage.leave_out_records("the session may expire before or after the broker asks again")

    stage.step("3 is frozen, and goes on after its session has expired")
    os.kill(stage.nodes[3].pid, signal.SIGSTOP)
    stage.fenced(3)
    stage.until(lambda state: 3 not in state.partition("p")["isr"], "3 out of sync")
    os.kill(stage.nodes[3].pid, signal.SIGCONT)
    stage.until(lambda state: not state.brokers[3]["fenced"], "3 unfenced")
    stage.records()
    below_min_insync(stage)
    min_insync_replicas(stage)


def below_min_insync(stage: Stage) -> None:
    stage.step("kill -9 of 3, then of 2: eligible leader replicas")
    for broker in (3, 2):
        stage.kill(broker)
        stage.fenced(broker)
        stage.records()
        describe(stage)

    stage.step("kill -9 of 1: no broker is left")
    stage.kill(1)
    stage.fenced(1)
    stage.records()

    stage.step("3 is started: neither in sync nor eligible")
    stage.start(3)
    stage.records()
    describe(stage)
    elect(stage, "preferred", "e")

    stage.step("2 is started: it was eligible")
    stage.start(2)
    stage.records()
    describe(stage)

    stage.step("1 is started: the last known leader")
    stage.start(1)
    stage.records()
    describe(stage)

    stage.step("unclean.leader.election.enable of p: clean stop of 1 and 2, kill -9 of 3")
    words = "--alter --entity-type topics --entity-name p --add-config"
    stage.tool("configs", f"{words} unclean.leader.election.enable=true")
    stage.stop(1)
    stage.fenced(1)
    stage.stop(2)
    stage.fenced(2)
    stage.kill(3)
    stage.fenced(3)
    stage.records()
    stage.start(2)
    stage.records()
    describe(stage)
    stage.start(3, 1)
    stage.settle()
    stage.skip_records()


def min_insync_replicas(stage: Stage) -> None:
    stage.step("min.insync.replicas of a topic, the cluster and a broker")
    for words in (
        "--entity-type topics --entity-name e --add-config min.insync.replicas=1",
        "--entity-type topics --entity-name e --delete-config min.insync.replicas",
        "--entity-type brokers --entity-default --delete-config min.insync.replicas",
        "--entity-type brokers --entity-name 1 --add-config min.insync.replicas=2",
        "--entity-type brokers --entity-default --add-config min.insync.replicas=1",
    ):
        stage.tool("configs", f"--alter {words}")
    stage.records()


def features(stage: Stage, *all_words: str) -> None:
    """Change levels and write down the records of each change."""
    for words in all_words:
        stage.tool("features", words)
        stage.records()


@scenario("12-features")
def feature_levels(stage: Stage) -> None:
    stage.step("format with --release-version 4.0, start")
    stage.tool(
        "storage", "format -t <cluster> -c <n1.properties> --release-version 4.0", server="-"
    )
    stage.start()
    stage.records()
    stage.tool("features", "describe")
    stage.tool("topics", "--create --topic t --partitions 1")
    stage.tool(
        "configs",
        "--alter --entity-type brokers --entity-name 1 --add-config cordoned.log.dirs=<n1d2>",
    )
    stage.records(has_any_place=True)

    stage.step("upgrades: a dry run, and what is refused")
    features(
        stage,
        "upgrade --release-version 4.3 --dry-run",
        "upgrade --feature nosuch=1",
        "upgrade --metadata 4.9",
        "upgrade --feature metadata.version=99",
        "upgrade --feature group.version=1",
        "upgrade --feature share.version=1",
        "upgrade --feature eligible.leader.replicas.version=1",
    )

    stage.step("metadata.version to 4.2, all to 4.3")
    features(stage, "upgrade --metadata 4.2", "upgrade --release-version 4.3", "describe")

    stage.step("downgrades")
    features(
        stage,
        "downgrade --metadata 4.2",
        "downgrade --metadata 4.2 --unsafe",
        "downgrade --metadata 4.2 --dry-run",
        "downgrade --release-version 4.1",
        "downgrade --feature group.version=0",
        "downgrade --feature share.version=0",
        "downgrade --feature transaction.version=1",
        "downgrade --feature eligible.leader.replicas.version=0",
        "disable --feature streams.version",
        "downgrade --feature kraft.version=0",
        "describe",
    )

    stage.step("upgrades again; to a lower level; kraft.version with static voters")
    features(
        stage,
        "upgrade --feature metadata.version=25",
        "upgrade --release-version 4.3",
        "upgrade --feature kraft.version=1",
        "describe",
    )

    restarted(stage)
    newest_release(stage)


def restarted(stage: Stage) -> None:
    stage.step("restart")
    stage.stop(1)
    stage.start()
    stage.records()
    stage.files(has_topics=False)
    stage.tool("metadata-quorum", "describe --status")


def newest_release(stage: Stage) -> None:
    stage.step("to the newest release, and back")
    features(
        stage,
        "upgrade --release-version 4.4",
        "describe",
        "downgrade --release-version 4.3",
        "downgrade --feature metadata.version=31",
        "downgrade --feature share.version=1",
    )
