"""A rehearsal for operators: a disk dies under a producer, and nothing is lost.

    python examples/disk_rehearsal.py

Needs confluent-kafka. Starts three brokers with three log directories each, writes records with an
idempotent producer, lets the disk of a leader fail with I/O errors half way, and reads every record
back. Then the disk is mended, and the broker takes it back while it runs.
"""

from collections import Counter

from confluent_kafka import Consumer, KafkaException, Producer

from spindle.testing import Cluster, Disk

TOPIC = "rehearsal"
PARTITIONS = 12
RECORDS = 500


def disk_to_lose(cluster: Cluster) -> tuple[int, int, Disk]:
    """Return a partition, its leader and the disk that the leader has it on.

    The first disk of a broker holds the metadata log, too, and a broker that loses it ends.
    """
    for partition in range(PARTITIONS):
        leader = cluster.wait_for_leader(TOPIC, partition)
        disk = cluster.broker(leader).disk_of(TOPIC, partition)
        if disk.number > 1:
            return partition, leader, disk
    raise SystemExit("all partitions are on first disks")


def send(producer: Producer, numbers: range) -> None:
    """Send a record for each number; the key chooses the partition."""

    def on_delivery(error: object, message: object) -> None:
        if error is not None:
            raise KafkaException(error)

    for number in numbers:
        producer.produce(TOPIC, key=f"key-{number}", value=str(number), on_delivery=on_delivery)
        producer.poll(0)


def send_while_it_fails(bootstrap: str, disk: Disk) -> None:
    """Send all records, and let the disk fail after the first half of them."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    send(producer, range(RECORDS // 2))
    disk.fail()
    send(producer, range(RECORDS // 2, RECORDS))
    if producer.flush(60):
        raise SystemExit("records were not acknowledged in 60 s")


def read_all(bootstrap: str) -> Counter[int]:
    """Return how often each number is in the topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "rehearsal",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe([TOPIC])
    counter: Counter[int] = Counter()
    ended = set()
    try:
        while len(ended) < PARTITIONS:
            message = consumer.poll(30)
            if message is None:
                raise SystemExit("no record for 30 s")
            if message.error() is None:
                counter[int(message.value())] += 1
            else:
                ended.add(message.partition())
    finally:
        consumer.close()
    return counter


def main() -> None:
    """Run the rehearsal on a cluster that is removed at the end."""
    with Cluster(brokers=3, directories=3) as cluster:
        cluster.create_topic(TOPIC, PARTITIONS, configs={"min.insync.replicas": 2})
        partition, leader, disk = disk_to_lose(cluster)
        print(f"broker {leader} leads partition {partition} from {disk.path}, which fails")
        send_while_it_fails(cluster.bootstrap_servers, disk)
        print(f"offline: {disk.wait_until_offline()}")
        print(f"leader now: {cluster.wait_for_leader(TOPIC, partition, other_than=leader)}")
        counter = read_all(cluster.bootstrap_servers)
        print(f"{len(counter)} of {RECORDS} records are there, {max(counter.values())} time each")
        disk.heal()
        disk.bring_online()
        cluster.wait_until_in_sync()
        print("the disk is mended, and all replicas are in sync")


if __name__ == "__main__":
    main()
