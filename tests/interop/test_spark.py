"""Spark's built-in Kafka connector on Spindle, unchanged, compared with our sources."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from peers import spark_venv
from peers.clients import create
from peers.compare import FIRST_TIMESTAMP_MS, Answer
from peers.node import KafkaNode, Node
from peers.samples import CODECS, samples

pytestmark = pytest.mark.timeout(300)

# `spindle-segments` reads the checkpoint files of a running node, so let it write them often.
CHECKPOINTS = {
    "replica.high.watermark.checkpoint.interval.ms": "200",
    "log.flush.start.offset.checkpoint.interval.ms": "200",
}
CHECKPOINT_DELAY_S = 1.5


def fill(node: Node) -> None:
    """Make a topic with every codec in one log, one with append time, and one that starts late."""
    create(node, "mixed", 3)
    create(node, "append-time", 2, {"message.timestamp.type": "LogAppendTime"})
    create(node, "trimmed", 1)
    create(node, "empty", 2)
    create(node, "sink", 3)
    for topic in ("mixed", "append-time", "trimmed"):
        for codec in CODECS:
            send(node, topic, codec, 1 if topic == "trimmed" else 2)
    trim = AdminClient({"bootstrap.servers": node.bootstrap, "log_level": 0})
    place = TopicPartition("trimmed", 0, 60)
    trim.delete_records([place])[place].result(30)
    time.sleep(CHECKPOINT_DELAY_S)


def send(node: Node, topic: str, codec: str, partitions: int) -> None:
    producer = Producer(
        {
            "bootstrap.servers": node.bootstrap,
            "log_level": 0,
            "compression.type": codec,
            "linger.ms": 20,
            "batch.num.messages": 20,
            "enable.idempotence": codec in ("none", "lz4"),
        }
    )
    for number, sample in enumerate(samples()):
        producer.produce(
            topic, key=sample.key, value=sample.value, headers=[*sample.headers],
            timestamp=sample.timestamp_ms, partition=number % partitions,
        )  # fmt: skip
    assert producer.flush(30) == 0


def play(node: Node, folder: Path) -> Answer:
    fill(node)
    offsets = json.dumps({"mixed": {"0": 17, "1": 3, "2": -2}})
    ends = json.dumps({"mixed": {"0": 90, "1": -1, "2": -1}})
    plan = {
        "bootstrap": node.bootstrap,
        "log_dirs": [str(path) for path in node.log_dirs],
        "folder": str(folder),
        "sink": "sink",
        "checkpoint_delay_s": CHECKPOINT_DELAY_S,
        "reads": {
            "everything": {"subscribePattern": "mixed|append-time|trimmed|empty"},
            "range": {"subscribe": "mixed", "startingOffsets": offsets, "endingOffsets": ends},
            "time": {
                "subscribe": "mixed",
                "startingTimestamp": str(FIRST_TIMESTAMP_MS + 12_000),
                "startingOffsetsByTimestampStrategy": "latest",
            },
            "split": {"subscribe": "mixed", "minPartitions": "7"},
            "assigned": {"assign": '{"mixed":[1]}'},
        },
    }
    done = subprocess.run(
        [str(spark_venv.python()), str(Path(__file__).with_name("spark_rows.py"))],
        input=json.dumps(plan),
        capture_output=True,
        text=True,
        env=spark_venv.environment(),
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module", params=["candidate", "kafka"])
def answer(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    candidate_class: type[Node],
) -> Answer:
    """Return the rows that Spark reads from Spindle, and with our sources from Kafka, too."""
    folder = tmp_path_factory.mktemp("spark")
    node_class = candidate_class if request.param == "candidate" else KafkaNode
    node = node_class(folder / "node", overrides=dict(CHECKPOINTS))
    try:
        with node:
            return play(node, folder)
    finally:
        node.remove()


def check(comparison: Answer, count: int | None = None) -> None:
    for source in ("spindle", "spindle-segments"):
        assert comparison[f"{source} differs"] == []
        assert comparison[source] == comparison["kafka"]
        assert comparison[f"{source} schema"] == comparison["kafka schema"]
    if count is not None:
        assert comparison["kafka"] == count


@pytest.mark.parametrize(
    ("name", "count"),
    [("everything", 250 + 250 + 190), ("range", None), ("time", None), ("split", 250),
     ("assigned", 125)],
)  # fmt: skip
def test_rows_are_those_of_the_built_in_source(answer: Answer, name: str, count: int) -> None:
    check(answer["batch"][name], count)
    assert answer["batch"][name]["kafka"] > 0


def test_rows_that_the_built_in_sink_wrote(answer: Answer) -> None:
    check(answer["written"], 1000)


def test_the_built_in_stream_resumes(answer: Answer) -> None:
    assert answer["stream"] == [1000, 1010]
