"""kafka-get-offsets, kafka-delete-records and kafka-log-dirs on known data."""

from __future__ import annotations

import json

import pytest
from confluent_kafka import Producer
from peers.compare import FIRST_TIMESTAMP_MS, Answer, Pair, tool_answer
from peers.node import Node


def fill(pair: Pair, node: Node, topic: str, partitions: int = 2, records: int = 100) -> None:
    """Create `topic` and send numbered records, one second apart, round-robin."""
    pair.java_tools.run(
        "topics", "--bootstrap-server", node.bootstrap,
        "--create", "--topic", topic, "--partitions", str(partitions),
    ).check()  # fmt: skip
    producer = Producer({"bootstrap.servers": node.bootstrap, "log_level": 0, "linger.ms": 5})
    for number in range(records):
        producer.produce(
            topic,
            value=b"value-%06d" % number,
            key=b"key-%06d" % number,
            partition=number % partitions,
            timestamp=FIRST_TIMESTAMP_MS + number * 1000,
        )
    assert producer.flush(30) == 0


@pytest.fixture(scope="module")
def filled(module_pair: Pair) -> str:
    for node in (module_pair.reference, module_pair.candidate):
        fill(module_pair, node, "filled")
    return "filled"


@pytest.mark.parametrize(
    "time",
    [
        "earliest",
        "latest",
        "max-timestamp",
        "earliest-local",
        "latest-tiered",
        "-1",
        "-2",
        "-3",
        "-4",
        "-5",
        "first",
        "first-1",
        "first+50500",
        "first+99000",
        "first+99001",
        "0",
        "never",
    ],
)
def test_get_offsets_by_time(pair: Pair, filled: str, time: str) -> None:
    if time.startswith("first"):
        time = str(FIRST_TIMESTAMP_MS + int(time.removeprefix("first") or 0))
    answer = pair.compare(
        lambda node: tool_answer(
            pair.java_tools.run(
                "get-offsets", "--bootstrap-server", node.bootstrap, "--topic", filled,
                "--time", time,
            )
        )
    )  # fmt: skip
    assert answer["exit"] == (1 if time == "never" else 0)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--topic", "fil.*"),
        ("--topic", "missing"),
        ("--topic-partitions", "filled:1"),
        ("--topic-partitions", "filled:0-9"),
        ("--topic", "filled", "--partitions", "1"),
        ("--topic", "filled", "--partitions", "7"),
        ("--exclude-internal-topics", "--topic", "filled"),
    ],
    ids=" ".join,
)
def test_get_offsets_selection(pair: Pair, filled: str, arguments: tuple[str, ...]) -> None:
    answer = pair.compare(
        lambda node: tool_answer(
            pair.java_tools.run("get-offsets", "--bootstrap-server", node.bootstrap, *arguments)
        )
    )
    assert isinstance(answer["exit"], int)


def delete_records(pair: Pair, node: Node, partitions: list[dict[str, object]]) -> Answer:
    order = node.folder / "delete-records.json"
    order.write_text(json.dumps({"partitions": partitions, "version": 1}))
    return tool_answer(
        pair.java_tools.run(
            "delete-records", "--bootstrap-server", node.bootstrap, "--offset-json-file", str(order)
        )
    )


def offsets(pair: Pair, node: Node, topic: str, time: str) -> Answer:
    return pair.java_tools.run(
        "get-offsets", "--bootstrap-server", node.bootstrap, "--topic", topic, "--time", time
    ).lines


def test_delete_records(pair: Pair) -> None:
    def script(node: Node) -> Answer:
        topic = "to-delete"
        fill(pair, node, topic)
        answers: list[Answer] = []
        for partition, offset in [(0, 10), (0, 5), (0, 51), (1, -1), (0, 20)]:
            one = {"topic": topic, "partition": partition, "offset": offset}
            answers.append(delete_records(pair, node, [one]))
            answers.append(offsets(pair, node, topic, "earliest"))
            answers.append(offsets(pair, node, topic, str(FIRST_TIMESTAMP_MS)))
        answers.append(offsets(pair, node, topic, "latest"))
        return answers

    pair.compare(script)


def log_dirs(pair: Pair, node: Node, *arguments: str) -> Answer:
    """Return the parsed output of kafka-log-dirs: sizes by directory and partition, in order."""
    done = pair.java_tools.run(
        "log-dirs", "--bootstrap-server", node.bootstrap, "--describe", *arguments
    )
    document = next((line for line in done.lines if line.startswith("{")), None)
    if document is None:
        return tool_answer(done)
    parsed = json.loads(document)
    for broker in parsed["brokers"]:
        broker["logDirs"].sort(key=lambda entry: str(entry["logDir"]))
        for directory in broker["logDirs"]:
            directory["partitions"].sort(key=lambda entry: str(entry["partition"]))
    return parsed


def without_places(answer: Answer) -> Answer:
    """Return a kafka-log-dirs document without the directory of each partition.

    Among directories with equally many partitions, Kafka's choice follows the order of a hash map.
    """
    if not isinstance(answer, dict) or "brokers" not in answer:
        return answer
    return [
        {
            "directories": [[entry["logDir"], entry["error"]] for entry in broker["logDirs"]],
            "partitions": sorted(
                (one for entry in broker["logDirs"] for one in entry["partitions"]),
                key=lambda one: str(one["partition"]),
            ),
        }
        for broker in answer["brokers"]
    ]


def test_log_dirs_of_one_topic(pair: Pair, filled: str) -> None:
    answer = pair.compare(lambda node: without_places(log_dirs(pair, node, "--topic-list", filled)))
    sizes = [partition["size"] for partition in answer[0]["partitions"]]
    assert len(sizes) == 2
    assert min(sizes) > 0


def test_log_dirs_selection(pair: Pair, filled: str) -> None:
    selections = [
        ("--topic-list", "missing"),
        ("--topic-list", filled, "--broker-list", "1"),
        ("--topic-list", filled, "--broker-list", "9"),
    ]
    pair.compare(
        lambda node: [without_places(log_dirs(pair, node, *words)) for words in selections]
    )


def test_new_partitions_spread_over_the_directories(pair: Pair) -> None:
    """Every directory gets as many partitions, counted over all topics of the node."""

    def script(node: Node) -> Answer:
        pair.java_tools.run(
            "topics", "--bootstrap-server", node.bootstrap,
            "--create", "--topic", "spread", "--partitions", "9",
        ).check()  # fmt: skip
        while True:  # directories are assigned after the answer to the creation
            parsed = log_dirs(pair, node)
            directories = [entry["partitions"] for entry in parsed["brokers"][0]["logDirs"]]
            names = [one["partition"] for partitions in directories for one in partitions]
            if sum(name.startswith("spread-") for name in names) == 9:
                return sorted(len(partitions) for partitions in directories)

    counts = pair.compare(script)
    assert max(counts) - min(counts) <= 1
