"""Kafka's load and verification tools: every record arrives, in order, and is counted."""

from __future__ import annotations

import json
import re

from peers.compare import Answer, Pair
from peers.java_tools import run_in_new_jvm
from peers.node import Node

RECORDS = 20_000


def create(pair: Pair, node: Node, topic: str, partitions: int) -> None:
    pair.java_tools.run(
        "topics", "--bootstrap-server", node.bootstrap,
        "--create", "--topic", topic, "--partitions", str(partitions),
    ).check()  # fmt: skip


def test_perf_tools_count_the_same_records(pair: Pair) -> None:
    def script(node: Node) -> Answer:
        create(pair, node, "perf", 3)
        produced = run_in_new_jvm(
            "producer-perf", "--topic", "perf", "--num-records", str(RECORDS),
            "--record-size", "200", "--throughput", "-1",
            "--command-property", f"bootstrap.servers={node.bootstrap}", "compression.type=lz4",
        ).check()  # fmt: skip
        consumed = run_in_new_jvm(
            "consumer-perf", "--bootstrap-server", node.bootstrap, "--topic", "perf",
            "--num-records", str(RECORDS), "--timeout", "30000",
        ).check()  # fmt: skip
        sent = re.search(r"(\d+) records sent, .* 99\.9th", produced.stdout)
        row = consumed.lines[-1].split(",")
        return {"sent": sent and int(sent[1]), "received": int(row[4])}

    answer = pair.compare(script)
    assert answer["sent"] == RECORDS
    assert answer["received"] >= RECORDS


def test_verifiable_producer_and_consumer(pair: Pair) -> None:
    count = 2_000

    def script(node: Node) -> Answer:
        create(pair, node, "verified", 2)
        produced = run_in_new_jvm(
            "verifiable-producer", "--bootstrap-server", node.bootstrap, "--topic", "verified",
            "--max-messages", str(count), "--acks", "-1",
        ).check()  # fmt: skip
        consumed = run_in_new_jvm(
            "verifiable-consumer", "--bootstrap-server", node.bootstrap, "--topic", "verified",
            "--group-id", "verifier", "--max-messages", str(count), "--reset-policy", "earliest",
            "--verbose",
        ).check()  # fmt: skip
        acked = _events(produced.lines, "producer_send_success")
        read = _events(consumed.lines, "record_data")
        commits = _events(consumed.lines, "offsets_committed")
        # The producer chooses the partitions, so compare only what holds for every choice.
        sent = sorted((one["partition"], one["offset"], int(one["value"])) for one in acked)
        seen = sorted((one["partition"], one["offset"], int(one["value"])) for one in read)
        return {
            "values": sorted(value for _, _, value in seen),
            "read_is_what_was_acknowledged": sent == seen,
            "commits_succeed": bool(commits) and all(one["success"] for one in commits),
        }

    answer = pair.compare(script)
    assert answer["values"] == list(range(count))
    assert answer["read_is_what_was_acknowledged"]


def _events(lines: list[str], name: str) -> list[dict[str, Answer]]:
    events = [json.loads(line) for line in lines if line.startswith("{")]
    return [event for event in events if event["name"] == name]
