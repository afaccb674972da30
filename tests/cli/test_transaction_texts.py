"""The tables of `kafka-transactions`, and the numbers in its options."""

import pytest

from spindle.cli.kafka_home.kafka_mode import run_tool
from spindle.cli.tools.transactions import transactions
from spindle.cli.tools.transactions_text import producer_table, transaction_table
from spindle.client.admin.transactions import ActiveProducer, TransactionDescription
from spindle.common.ids import TopicPartition


def test_the_state_of_an_id_without_a_transaction() -> None:
    described = TransactionDescription("id", 1, 7, 0, "Empty", 1000, None, ())
    _, row = transaction_table(described, now_ms=99)
    assert [cell.strip() for cell in row.split("\t")] == [
        "1", "id", "7", "0", "Empty", "1000", "None", "None", "", ""
    ]  # fmt: skip


def test_partitions_of_a_transaction_are_in_the_order_of_a_java_hash_set() -> None:
    partitions = (TopicPartition("b", 1), TopicPartition("a", 0), TopicPartition("b", 0))
    described = TransactionDescription("id", 1, 7, 0, "Ongoing", 1000, 90, partitions)
    _, row = transaction_table(described, now_ms=99)
    cells = [cell.strip() for cell in row.split("\t")]
    assert cells[7:9] == ["9", "b-1,a-0,b-0"]


def test_a_producer_outside_of_a_transaction() -> None:
    _, row = producer_table([ActiveProducer(7, 1, 4, 1000, -1, None)])
    assert [cell.strip() for cell in row.split("\t")] == ["7", "1", "-1", "4", "1000", "None", ""]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (
            "abort --topic t --partition 0 --producer-epoch 70000",
            "could not convert '70000' to Short (Value out of range. Value:\"70000\" Radix:10)",
        ),
        (
            "describe-producers --topic t --partition x",
            "argument --partition: could not convert 'x' to Integer (For input string: \"x\")",
        ),
        ("describe-producers", "argument --partition is required"),
        ("find-hanging", "The `find-hanging` command requires either --topic or --broker-id"),
        (
            "find-hanging --broker-id 1 --partition 0",
            "The --partition argument requires --topic to be provided",
        ),
    ],
)
def test_wrong_options_are_refused_with_the_reason(
    words: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run_tool(
        transactions, "kafka-transactions", ["--bootstrap-server", "127.0.0.1:1", *words.split()]
    )
    assert code == 1
    assert reason in capsys.readouterr().err
