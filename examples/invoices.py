"""An exactly-once application: reads orders, and writes one invoice for each of them.

    python examples/invoices.py BOOTSTRAP

The invoices and the positions in the orders are committed in one transaction. So there is one
invoice for each order, also after a crash, for consumers with isolation.level=read_committed.
Needs confluent-kafka.
"""

import json
import sys

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from orders import POLL_S, TIMEOUT_S, has_read_all

ORDERS = "orders"
INVOICES = "invoices"
GROUP = "invoices"
TRANSACTIONAL_ID = "invoices-1"


def write_invoices(bootstrap: str) -> int:
    """Write invoices until there is one for each order; their number.

    A second process with the same transactional id fences this one, whose next transaction fails.

    Raises:
        KafkaException: this process is fenced, or the cluster does not answer.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": TRANSACTIONAL_ID})
    producer.init_transactions(TIMEOUT_S)
    consumer.subscribe([ORDERS])
    written = 0
    try:
        while True:
            messages = consumer.consume(100, timeout=POLL_S)
            if not messages:
                if has_read_all(consumer):
                    return written
                continue
            for message in messages:
                if message.error():
                    raise KafkaException(message.error())
            try:
                _write(producer, consumer, messages)
                written += len(messages)
            except KafkaException as error:
                if not error.args[0].txn_requires_abort():
                    raise
                producer.abort_transaction(TIMEOUT_S)
                _read_again(consumer)
    finally:
        consumer.close()


def _write(producer: Producer, consumer: Consumer, messages: list[Message]) -> None:
    producer.begin_transaction()
    for message in messages:
        order = json.loads(message.value())
        invoice = json.dumps({"customer": order["customer"], "invoiced": order["coins"]})
        producer.produce(INVOICES, key=message.key(), value=invoice)
    producer.send_offsets_to_transaction(
        consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), TIMEOUT_S
    )
    producer.commit_transaction(TIMEOUT_S)


def _read_again(consumer: Consumer) -> None:
    """Go back to the committed positions, because the transaction was aborted."""
    for position in consumer.committed(consumer.assignment(), timeout=TIMEOUT_S):
        where = max(position.offset, 0)  # negative: nothing was committed yet
        consumer.seek(TopicPartition(position.topic, position.partition, where))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: python examples/invoices.py BOOTSTRAP")
    print(write_invoices(sys.argv[1]), "invoices")
