"""Which open transactions hang."""

from spindle.client.admin.hanging_transactions import OpenTransaction, hanging
from spindle.client.admin.transactions import ActiveProducer, TransactionDescription
from spindle.common.ids import TopicPartition

HERE, THERE = TopicPartition("t", 0), TopicPartition("t", 1)


def opened(producer_id: int, partition: TopicPartition = HERE) -> OpenTransaction:
    return OpenTransaction(partition, ActiveProducer(producer_id, 0, 0, 1000, -1, 5))


def described(*partitions: TopicPartition) -> TransactionDescription:
    return TransactionDescription("id", 1, 7, 0, "Ongoing", 1000, 0, partitions)


def test_a_transaction_hangs_unless_its_coordinator_will_end_it_in_that_partition() -> None:
    all_open = [opened(1), opened(2), opened(3), opened(3, THERE)]
    ids = {2: "forgotten", 3: "known"}
    states = {"forgotten": None, "known": described(THERE)}
    assert hanging(all_open, ids, states.__getitem__) == [opened(1), opened(2), opened(3)]


def test_a_transactional_id_is_described_once() -> None:
    asked: list[str] = []

    def describe(name: str) -> TransactionDescription:
        asked.append(name)
        return described(HERE, THERE)

    assert hanging([opened(3), opened(3, THERE)], {3: "known"}, describe) == []
    assert asked == ["known"]
