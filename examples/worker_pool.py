"""A work queue: a pool of workers shares one topic, and each job is answered on its own.

    python examples/worker_pool.py BOOTSTRAP [COUNT]

A job that fails for a moment is released and comes again; one that can never succeed is rejected
and goes to the dead-letter topic. Needs confluent-kafka, and brokers with share.version 2.
"""

import sys
import threading
from collections import Counter

from confluent_kafka import AcknowledgeType, Consumer, KafkaException, Producer, ShareConsumer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

TOPIC = "jobs"
GROUP = "job-workers"
DEAD_LETTERS = "dlq.jobs"
WORKERS = 3
TIMEOUT_S = 60.0


def prepare(bootstrap: str) -> None:
    """Create both topics, and set where the group begins and where its dead letters go."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [
        NewTopic(TOPIC, 1, 1),
        NewTopic(DEAD_LETTERS, 1, 1, config={"errors.deadletterqueue.group.enable": "true"}),
    ]
    for created in admin.create_topics(topics).values():
        created.result(TIMEOUT_S)
    settings = {
        "share.auto.offset.reset": "earliest",
        "share.delivery.count.limit": "5",
        "errors.deadletterqueue.topic.name": DEAD_LETTERS,
        "errors.deadletterqueue.copy.record.enable": "true",
    }
    entries = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        for key, value in settings.items()
    ]
    group = ConfigResource(ResourceType.GROUP, GROUP, incremental_configs=entries)
    for changed in admin.incremental_alter_configs([group]).values():
        changed.result(TIMEOUT_S)


def send_jobs(bootstrap: str, count: int) -> None:
    """Send jobs; every tenth is broken, and every fourth of the others fails once."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(count):
        kind = "broken" if number % 10 == 9 else "shaky" if number % 4 == 3 else "good"
        producer.produce(TOPIC, key=str(number), value=kind)
        producer.poll(0)
    if producer.flush(TIMEOUT_S):
        raise SystemExit("not all jobs were stored")


def answer_to(kind: bytes, delivery_count: int) -> AcknowledgeType:
    """Do a job, and return how to answer it."""
    if kind == b"broken":
        return AcknowledgeType.REJECT
    if kind == b"shaky" and delivery_count == 1:
        return AcknowledgeType.RELEASE
    return AcknowledgeType.ACCEPT


def work(bootstrap: str, answers: Counter[str], lock: threading.Lock, count: int) -> None:
    """Take jobs as a member of the pool until all are accepted or rejected.

    An answer counts when it is committed: a job whose worker dies before that comes again when its
    lock expires, so a job must bear being done twice.
    """
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": GROUP,
        "share.acknowledgement.mode": "explicit",
    }
    worker = ShareConsumer(settings)
    try:
        worker.subscribe([TOPIC])
        while answers["ACCEPT"] + answers["REJECT"] < count:
            done: Counter[str] = Counter()
            for job in worker.poll(0.5):
                if job.error():
                    raise KafkaException(job.error())
                answer = answer_to(job.value(), job.delivery_count())
                worker.acknowledge(job, answer)
                done[answer.name] += 1
            failures = [error for error in worker.commit_sync(TIMEOUT_S).values() if error]
            if failures:
                raise KafkaException(failures[0])
            with lock:
                answers.update(done)
    finally:
        worker.close()


def dead_letters(bootstrap: str, count: int) -> list[tuple[bytes, bytes]]:
    """Return key and reason of the rejected jobs."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "inspector", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([DEAD_LETTERS])
    letters: list[tuple[bytes, bytes]] = []
    try:
        while len(letters) < count:
            message = consumer.poll(1.0)
            if message is not None and not message.error():
                reason = dict(message.headers())["__dlq.errors.message"]
                letters.append((message.key(), reason))
    finally:
        consumer.close()
    return letters


def main() -> None:
    """Send jobs, let a pool of workers do them, and show the dead letters."""
    if len(sys.argv) < 2:
        raise SystemExit("usage: python examples/worker_pool.py BOOTSTRAP [COUNT]")
    bootstrap = sys.argv[1]
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 1000
    prepare(bootstrap)
    send_jobs(bootstrap, count)
    answers: Counter[str] = Counter()
    lock = threading.Lock()
    pool = [
        threading.Thread(target=work, args=(bootstrap, answers, lock, count))
        for _ in range(WORKERS)
    ]
    for worker in pool:
        worker.start()
    for worker in pool:
        worker.join()
    for name in ("ACCEPT", "RELEASE", "REJECT"):
        print(f"{name:<8} {answers[name]:>6}")
    letters = dead_letters(bootstrap, answers["REJECT"])
    print(
        f"{len(letters)} dead letters, the first: {letters[0][1].decode()}" if letters else "none"
    )


if __name__ == "__main__":
    main()
