"""An application: orders go into a topic, and a consumer group adds them up by customer.

    python examples/orders.py BOOTSTRAP [COUNT]

Needs confluent-kafka. Any other Kafka client would do.
"""

import json
import sys
import threading
from collections import Counter

from confluent_kafka import Consumer, KafkaException, Producer

TOPIC = "orders"
CUSTOMERS = ("ann", "bob", "cleo")
GROUP = "order-totals"
POLL_S = 1.0
TIMEOUT_S = 60.0


def send_orders(bootstrap: str, count: int) -> None:
    """Send orders of 1, 2, 3, ... coins, each to the next customer, and wait for all answers.

    The key chooses the partition, so that the orders of a customer stay in order.

    Raises:
        KafkaException: an order was not stored.
    """
    failures: list[KafkaException] = []

    def on_delivery(error: object, message: object) -> None:
        if error is not None:
            failures.append(KafkaException(error))

    producer = Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "compression.type": "zstd"}
    )
    for number in range(count):
        customer = CUSTOMERS[number % len(CUSTOMERS)]
        order = json.dumps({"customer": customer, "coins": number + 1})
        producer.produce(TOPIC, key=customer, value=order, on_delivery=on_delivery)
        producer.poll(0)
    producer.flush()
    if failures:
        raise failures[0]


def add_up(bootstrap: str, totals: Counter[str], lock: threading.Lock) -> None:
    """Read orders as a member of the group until its partitions have been read to the end.

    The positions are committed after the orders were counted: after a crash the next member
    counts some orders again, and loses none.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([TOPIC])
    try:
        while True:
            messages = consumer.consume(500, timeout=POLL_S)
            if not messages:
                if has_read_all(consumer):
                    return
                continue
            for message in messages:
                if message.error():
                    raise KafkaException(message.error())
                order = json.loads(message.value())
                with lock:
                    totals[order["customer"]] += order["coins"]
            consumer.commit(asynchronous=False)
    finally:
        consumer.close()


def has_read_all(consumer: Consumer) -> bool:
    """Tell whether the group gave this member partitions, and has committed the end of each.

    Silence alone tells nothing: a member also hears nothing while the group shares out
    partitions, and while another broker takes over from one that died.
    """
    assigned = consumer.assignment()
    for position in consumer.committed(assigned, timeout=TIMEOUT_S) if assigned else ():
        low, high = consumer.get_watermark_offsets(position, timeout=TIMEOUT_S)
        if max(position.offset, low) < high:  # negative: nothing was committed yet
            return False
    return bool(assigned)


def main() -> None:
    """Send orders, and add them up in a group of two members."""
    if len(sys.argv) < 2:
        raise SystemExit("usage: python examples/orders.py BOOTSTRAP [COUNT]")
    bootstrap = sys.argv[1]
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 3000
    send_orders(bootstrap, count)
    totals: Counter[str] = Counter()
    lock = threading.Lock()
    members = [threading.Thread(target=add_up, args=(bootstrap, totals, lock)) for _ in range(2)]
    for member in members:
        member.start()
    for member in members:
        member.join()
    for customer in CUSTOMERS:
        print(f"{customer:<6} {totals[customer]:>10} coins")


if __name__ == "__main__":
    main()
