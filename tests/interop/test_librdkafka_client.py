"""confluent-kafka (librdkafka): produce, consume, groups and administration."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from peers import clients
from peers.clients import take
from peers.compare import FIRST_TIMESTAMP_MS, Answer, Pair
from peers.node import Node
from peers.samples import CODECS, samples, seen

LIMIT_S = 30.0


def admin(node: Node) -> AdminClient:
    return AdminClient({"bootstrap.servers": node.bootstrap})


def outcome(call: Callable[[], Answer]) -> Answer:
    """Return the result of `call`, or name and text of the error that it raised."""
    try:
        return call()
    except KafkaException as failure:
        error = failure.args[0]
        return [error.name(), error.str()]


def try_create(node: Node, topic: str, partitions: int = 1, **config: str) -> Answer:
    """Return the outcome of a creation that may be refused."""
    configs = {key.replace("_", "."): value for key, value in config.items()}
    client = admin(node)
    futures = client.create_topics([NewTopic(topic, partitions, config=configs)])
    return outcome(lambda: futures[topic].result(LIMIT_S))


def create(node: Node, topic: str, partitions: int = 1, **config: str) -> None:
    """Create a topic that can be used at once."""
    configs = {key.replace("_", "."): value for key, value in config.items()}
    clients.create(node, topic, partitions, configs)


def send(node: Node, topic: str, partition: int = 0, **config: object) -> list[Answer]:
    """Send the samples and return the content of each delivery report."""
    settings = {"bootstrap.servers": node.bootstrap, "linger.ms": 20}
    settings.update({key.replace("_", "."): value for key, value in config.items()})
    producer = Producer(settings)
    reports: list[Answer] = []

    def report(error: KafkaError | None, message: Message) -> None:
        reports.append(error.name() if error else message.offset())

    for sample in samples():
        producer.produce(
            topic,
            key=sample.key,
            value=sample.value,
            headers=[*sample.headers],
            timestamp=sample.timestamp_ms,
            partition=partition,
            on_delivery=report,
        )
    assert producer.flush(LIMIT_S) == 0
    return reports


@contextmanager
def consumer(node: Node, **config: object) -> Iterator[Consumer]:
    settings: dict[str, object] = {
        "bootstrap.servers": node.bootstrap,
        "group.id": "unused",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    settings.update({key.replace("_", "."): value for key, value in config.items()})
    one = Consumer(settings)
    try:
        yield one
    finally:
        one.close()


def read(
    node: Node, topic: str, count: int, partition: int = 0, offset: int = OFFSET_BEGINNING,
    **config: object,
) -> list[Answer]:  # fmt: skip
    """Return `count` records of one partition from `offset` on, in order."""
    with consumer(node, **config) as one:
        one.assign([TopicPartition(topic, partition, offset)])
        return [_plain(message) for message in take(one, count)]


def _plain(message: Message) -> Answer:
    kind, timestamp_ms = message.timestamp()
    fields = (message.key(), message.value(), message.headers())
    return [message.offset(), kind, *seen(*fields, timestamp_ms)]


@pytest.mark.parametrize("acks", ["all", "1"])
@pytest.mark.parametrize("codec", CODECS)
def test_records_come_back_as_they_were_sent(pair: Pair, codec: str, acks: str) -> None:
    topic = f"codec-{codec}-{acks}"

    def script(node: Node) -> Answer:
        create(node, topic)
        reports = send(node, topic, compression_type=codec, acks=acks)
        return {"reports": reports, "records": read(node, topic, len(samples()))}

    answer = pair.compare(script)
    assert answer["reports"] == list(range(len(samples())))
    assert [record[2:] for record in answer["records"]] == [one.seen() for one in samples()]


def test_acks_0(pair: Pair) -> None:
    def script(node: Node) -> Answer:
        create(node, "acks-0")
        send(node, "acks-0", acks="0")
        return read(node, "acks-0", len(samples()))

    records = pair.compare(script)
    assert [record[2:] for record in records] == [one.seen() for one in samples()]


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_idempotent_producer(pair: Pair, codec: str) -> None:
    topic = f"idempotent-{codec}"

    def script(node: Node) -> Answer:
        create(node, topic)
        settings: dict[str, Any] = {
            "enable_idempotence": True,
            "batch_num_messages": 7,
            "compression_type": codec,
        }
        reports = send(node, topic, **settings) + send(node, topic, **settings)
        return {"reports": reports, "count": len(read(node, topic, 2 * len(samples())))}

    answer = pair.compare(script)
    assert answer["reports"] == list(range(2 * len(samples())))


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
def test_the_broker_recompresses(pair: Pair, codec: str) -> None:
    """The topic has another compression.type than the producer."""
    topic = f"recompressed-{codec}"

    def script(node: Node) -> Answer:
        create(node, topic, compression_type=codec)
        sent = "lz4" if codec != "lz4" else "none"
        return [
            send(node, topic, compression_type=sent),
            read(node, topic, len(samples())),
            read(node, topic, 20, offset=30),
        ]

    _, records, _ = pair.compare(script)
    assert [record[2:] for record in records] == [one.seen() for one in samples()]


def test_log_append_time(pair: Pair) -> None:
    def script(node: Node) -> Answer:
        create(node, "append-time", message_timestamp_type="LogAppendTime")
        before = int(time.time() * 1000) - 5
        send(node, "append-time", compression_type="lz4")
        records = read(node, "append-time", len(samples()))
        after = int(time.time() * 1000) + 5
        return {
            "kinds": sorted({record[1] for record in records}),
            "in_range": all(before <= record[-1] <= after for record in records),
            "rest": [record[2:-1] for record in records],
        }

    answer = pair.compare(script)
    assert answer["in_range"]
    assert answer["kinds"] == [2]


def test_reading_starts_in_the_middle_of_a_batch(pair: Pair) -> None:
    def script(node: Node) -> Answer:
        create(node, "middle")
        send(node, "middle", compression_type="zstd")
        return [read(node, "middle", 3, offset=start) for start in (0, 1, 17, 47)]

    answers = pair.compare(script)
    assert [records[0][0] for records in answers] == [0, 1, 17, 47]


def test_small_fetches(pair: Pair) -> None:
    """A fetch that is smaller than the first batch still makes progress."""

    def script(node: Node) -> Answer:
        create(node, "small-fetch")
        for _ in range(3):
            send(node, "small-fetch")
        limits = {
            "fetch_message_max_bytes": 100,
            "fetch_max_bytes": 2000,
            "message_max_bytes": 2000,
        }
        return [record[0] for record in read(node, "small-fetch", 3 * len(samples()), **limits)]

    assert pair.compare(script) == list(range(3 * len(samples())))


def test_large_messages(pair: Pair) -> None:
    def script(node: Node) -> Answer:
        create(node, "large")
        create(node, "large-allowed", max_message_bytes="5000000")
        settings = {"bootstrap.servers": node.bootstrap, "message.max.bytes": 6_000_000}
        producer = Producer(settings)
        reports: list[Answer] = []
        for topic, size in [
            ("large", 900_000),
            ("large", 1_100_000),
            ("large-allowed", 4_900_000),
            ("large-allowed", 5_100_000),
        ]:
            producer.produce(
                topic,
                b"x" * size,
                on_delivery=lambda error, message: reports.append(
                    error.name() if error else [message.topic(), message.offset()]
                ),
            )
            assert producer.flush(LIMIT_S) == 0
        with consumer(node) as one:
            one.assign([TopicPartition("large-allowed", 0, OFFSET_BEGINNING)])
            sizes = [len(message.value() or b"") for message in take(one, 1)]
        return reports, sizes

    reports, sizes = pair.compare(script)
    assert reports[1] == "MSG_SIZE_TOO_LARGE"
    assert sizes == [4_900_000]


def test_offsets_for_times_and_watermarks(pair: Pair) -> None:
    def script(node: Node) -> Answer:
        create(node, "times", 2)
        send(node, "times", 0, batch_num_messages=5)
        send(node, "times", 1, compression_type="gzip")
        offsets = []
        with consumer(node) as one:
            for step in (-10_000_000, -1, 0, 1, 1000, 7500, 30_000, 44_000, 49_000, 99_000):
                asked = [
                    TopicPartition("times", partition, FIRST_TIMESTAMP_MS + step)
                    for partition in (0, 1)
                ]
                offsets.append([one_.offset for one_ in one.offsets_for_times(asked, LIMIT_S)])
            marks = [one.get_watermark_offsets(TopicPartition("times", n), LIMIT_S) for n in (0, 1)]
        return offsets, marks

    _, marks = pair.compare(script)
    assert marks == [[0, 50], [0, 50]]


def test_reading_out_of_range(pair: Pair) -> None:
    def script(node: Node) -> Answer:
        create(node, "range")
        send(node, "range")
        with consumer(node, auto_offset_reset="error") as one:
            one.assign([TopicPartition("range", 0, 1000)])
            deadline = time.monotonic() + LIMIT_S
            while time.monotonic() < deadline:
                message = one.poll(0.5)
                if message is not None:
                    error = message.error()
                    return error and error.name()
        return None

    assert pair.compare(script) == "_AUTO_OFFSET_RESET"


def test_missing_topic_or_partition(pair: Pair) -> None:
    """Produce to a missing topic or partition, without automatic creation."""

    def script(node: Node) -> Answer:
        create(node, "one-partition", 1)
        settings = {
            "bootstrap.servers": node.bootstrap,
            "message.timeout.ms": 4000,
            "topic.metadata.propagation.max.ms": 500,
            "allow.auto.create.topics": False,
        }
        producer = Producer(settings)
        reports: list[Answer] = []
        producer.produce(
            "one-partition",
            b"x",
            partition=5,
            on_delivery=lambda e, m: reports.append(e and e.name()),
        )
        assert producer.flush(LIMIT_S) == 0
        return reports

    assert pair.compare(script) == ["_UNKNOWN_PARTITION"]


def test_automatic_creation(pair: Pair) -> None:
    def script(node: Node) -> Answer:
        reports = send(node, "automatic")
        described = admin(node).list_topics("automatic", LIMIT_S).topics["automatic"]
        return reports, len(described.partitions)

    reports, partitions = pair.compare(script)
    assert reports == list(range(50))
    assert partitions == 1


def test_a_group_resumes_where_it_committed(pair: Pair) -> None:
    def script(node: Node) -> Answer:
        create(node, "resume", 3)
        for partition in range(3):
            send(node, "resume", partition)
        rounds = []
        for _ in range(3):
            with consumer(node, group_id="resumer") as one:
                one.subscribe(["resume"])
                messages = take(one, 40)
                one.commit(asynchronous=False)
                rounds.append({(message.partition(), message.offset()) for message in messages})
        total = set().union(*rounds)
        with consumer(node, group_id="resumer") as one:
            asked = [TopicPartition("resume", partition) for partition in range(3)]
            committed = sum(entry.offset for entry in one.committed(asked, LIMIT_S))
        return len(total), sum(len(one) for one in rounds), committed

    assert pair.compare(script) == [120, 120, 120]


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_members_share_the_partitions(pair: Pair, strategy: str) -> None:
    """A second member joins, gets its part and leaves; then the first has all partitions again."""
    topic = f"shared-{strategy}"

    def script(node: Node) -> Answer:
        create(node, topic, 6)
        settings = {
            "group_id": f"members-{strategy}",
            "partition_assignment_strategy": strategy,
            "session_timeout_ms": 6000,
            "heartbeat_interval_ms": 300,
        }
        story = []
        with consumer(node, **settings) as first:
            first.subscribe([topic])
            story.append(_assigned([first], [6]))
            with consumer(node, **settings) as second:
                second.subscribe([topic])
                story.append(_assigned([first, second], [3, 3]))
            story.append(_assigned([first], [6]))
        return story

    assert pair.compare(script) == [[6], [3, 3], [6]]


def _assigned(members: list[Consumer], sizes: list[int]) -> list[int]:
    """Poll until the members hold `sizes` partitions each; return what they hold at the limit."""
    deadline = time.monotonic() + LIMIT_S
    assigned: list[int] = []
    while assigned != sizes and time.monotonic() < deadline:
        for member in members:
            member.poll(0.05)
        assigned = [len(member.assignment()) for member in members]
    return assigned


def test_static_members_keep_their_partitions(pair: Pair) -> None:
    def script(node: Node) -> Answer:
        create(node, "static", 4)
        settings = {"group_id": "static", "session_timeout_ms": 30_000}
        with consumer(node, group_instance_id="a", **settings) as first:
            first.subscribe(["static"])
            _assigned([first], [4])
            second = Consumer(
                {
                    "bootstrap.servers": node.bootstrap,
                    "group.id": "static",
                    "group.instance.id": "b",
                    "session.timeout.ms": 30_000,
                    "heartbeat.interval.ms": 300,
                }
            )
            second.subscribe(["static"])
            _assigned([first, second], [2, 2])
            before = sorted(one.partition for one in second.assignment())
            second.close()
            with consumer(node, group_instance_id="b", **settings) as again:
                again.subscribe(["static"])
                _assigned([again], [2])
                after = sorted(one.partition for one in again.assignment())
                held = len(first.assignment())
        return before == after, held

    assert pair.compare(script) == [True, 2]


def test_topic_administration(pair: Pair) -> None:
    def script(node: Node) -> Answer:
        client = admin(node)
        create(node, "adm", 2)
        answers: list[Answer] = [
            try_create(node, "adm", 2),
            try_create(node, "adm/", 2),
            try_create(node, "adm-zero", 0),
            try_create(node, "adm-config", 1, nosuch="1"),
            try_create(node, "adm-config", 1, retention_ms="x"),
        ]
        grow = [("adm", 5), ("adm", 5), ("adm", 3), ("adm-missing", 3)]
        for topic, total in grow:
            future = client.create_partitions([NewPartitions(topic, total)])[topic]
            answers.append(outcome(partial(future.result, LIMIT_S)))
        futures = client.create_topics([NewTopic("dry", 3)], validate_only=True)
        answers.append(outcome(lambda: futures["dry"].result(LIMIT_S)))
        time.sleep(0.2)
        topics = client.list_topics(timeout=LIMIT_S).topics
        answers.append(sorted((name, len(topics[name].partitions)) for name in ("adm",)))
        answers.append("dry" in topics)
        for topic in ("adm", "adm-missing"):
            future = client.delete_topics([topic])[topic]
            answers.append(outcome(partial(future.result, LIMIT_S)))
        return answers

    answers = pair.compare(script)
    assert answers[0][0] == "TOPIC_ALREADY_EXISTS"


def test_config_administration(pair: Pair) -> None:
    def script(node: Node) -> Answer:
        client = admin(node)
        create(node, "cfg", 1, retention_ms="5000")
        answers: list[Answer] = [_describe(client, ResourceType.TOPIC, "cfg")]
        changes = [
            ("retention.ms", AlterConfigOpType.SET, "9000"),
            ("cleanup.policy", AlterConfigOpType.APPEND, "compact"),
            ("cleanup.policy", AlterConfigOpType.SUBTRACT, "delete"),
            ("retention.ms", AlterConfigOpType.DELETE, None),
            ("retention.ms", AlterConfigOpType.SET, "x"),
            ("nosuch", AlterConfigOpType.SET, "x"),
        ]
        for name, operation, value in changes:
            entry = ConfigEntry(name, value, incremental_operation=operation)
            resource = ConfigResource(ResourceType.TOPIC, "cfg", incremental_configs=[entry])
            future = client.incremental_alter_configs([resource])[resource]
            answers.append(outcome(partial(future.result, LIMIT_S)))
            time.sleep(0.1)
            answers.append(_describe(client, ResourceType.TOPIC, "cfg", changed_only=True))
        answers.append(_describe(client, ResourceType.TOPIC, "missing"))
        return answers

    answers = pair.compare(script)
    assert len(answers[0]) > 25


def _describe(
    client: AdminClient, kind: ResourceType, name: str, changed_only: bool = False
) -> Answer:
    resource = ConfigResource(kind, name)
    future = client.describe_configs([resource])[resource]
    entries = outcome(lambda: future.result(LIMIT_S))
    if not isinstance(entries, dict):
        return entries
    return {
        name: [entry.value, entry.source, entry.is_read_only, entry.is_default, entry.is_sensitive,
               sorted(entry.synonyms)]
        for name, entry in sorted(entries.items())
        if not changed_only or entry.source == 1
    }  # fmt: skip


def test_offset_and_record_administration(pair: Pair) -> None:
    def script(node: Node) -> Answer:
        client = admin(node)
        create(node, "lo", 1)
        send(node, "lo")
        partition = TopicPartition("lo", 0)
        answers: list[Answer] = []
        offset_spec: Any = OffsetSpec  # its methods have no types
        specs = [
            offset_spec.earliest(),
            offset_spec.latest(),
            offset_spec.max_timestamp(),
            offset_spec.for_timestamp(FIRST_TIMESTAMP_MS + 20_000),
        ]
        for spec in specs:
            for isolation in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED):
                future = client.list_offsets({partition: spec}, isolation_level=isolation)[
                    partition
                ]
                result = future.result(LIMIT_S)
                answers.append([result.offset, result.timestamp, result.leader_epoch])
        for offset in (10, -1, 51):
            asked = TopicPartition("lo", 0, offset)
            future = client.delete_records([asked])[asked]
            deleted = outcome(partial(future.result, LIMIT_S))
            answers.append(getattr(deleted, "low_watermark", deleted))
        return answers

    assert pair.compare(script)[0][0] == 0


def test_group_administration(pair: Pair) -> None:
    def script(node: Node) -> Answer:
        client = admin(node)
        create(node, "ga", 2)
        offsets = [TopicPartition("ga", 0, 4), TopicPartition("ga", 1, 8)]
        altered = client.alter_consumer_group_offsets([ConsumerGroupTopicPartitions("gg", offsets)])
        answers: list[Answer] = [
            outcome(
                lambda: [str(one.error) for one in altered["gg"].result(LIMIT_S).topic_partitions]
            )
        ]
        asked = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions("gg", None)])
        result = asked["gg"].result(LIMIT_S).topic_partitions
        answers.append(sorted((one.topic, one.partition, one.offset) for one in result))
        described = client.describe_consumer_groups(["gg"])["gg"].result(LIMIT_S)
        answers.append([described.state.name, described.is_simple_consumer_group,
                        described.partition_assignor, len(described.members)])  # fmt: skip
        listed = client.list_consumer_groups().result(LIMIT_S)
        answers.append(
            sorted((one.group_id, one.state.name, one.type.name) for one in listed.valid
                   if one.group_id == "gg")
        )  # fmt: skip
        for group in ("gg", "gg", "gg-missing"):
            future = client.delete_consumer_groups([group])[group]
            answers.append(outcome(partial(future.result, LIMIT_S)))
        return answers

    answers = pair.compare(script)
    assert answers[1] == [["ga", 0, 4], ["ga", 1, 8]]


def test_cluster_description(pair: Pair) -> None:
    def script(node: Node) -> Answer:
        client = admin(node)
        described = client.describe_cluster(include_authorized_operations=True).result(LIMIT_S)
        return [
            described.cluster_id,
            described.controller.id,
            [(one.id, f"{one.host}:{one.port}", one.rack) for one in described.nodes],
            sorted(one.name for one in described.authorized_operations or []),
        ]

    assert pair.compare(script)[0] == "<cluster>"
