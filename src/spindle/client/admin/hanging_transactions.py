"""Transactions that hang: open in a partition, and unknown to their coordinator.

Nobody will end such a transaction, so consumers with `read_committed` stop before it (KIP-664).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from spindle.client.admin.transactions import (
    ActiveProducer,
    TransactionDescription,
    describe_producers,
    describe_transaction,
    list_transactions,
)
from spindle.client.blocking.client import WireClient
from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicPartition

_PARTITIONS_PER_REQUEST: Final = 500


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that is open in a partition."""

    partition: TopicPartition
    producer: ActiveProducer


def long_transactions(
    client: WireClient,
    partitions: Sequence[TopicPartition],
    *,
    broker_id: int | None,
    older_than_ms: int,
) -> list[OpenTransaction]:
    """Return the open transactions whose producer has written no record since a time.

    Args:
        broker_id: ask the replicas of this broker instead of the leaders.
        older_than_ms: the time, in ms since the epoch.

    Raises:
        ApiError: a partition was refused.
        ClientError: a broker could not be asked.
    """
    long_transactions = []
    for start in range(0, len(partitions), _PARTITIONS_PER_REQUEST):
        batch = partitions[start : start + _PARTITIONS_PER_REQUEST]
        for partition, producers in describe_producers(client, batch, broker_id).items():
            long_transactions += [
                OpenTransaction(partition, producer)
                for producer in producers
                if producer.transaction_start_offset is not None
                and producer.last_timestamp_ms < older_than_ms
            ]
    return long_transactions


def hanging(
    opened: Iterable[OpenTransaction],
    ids: Mapping[int, str],
    describe: Callable[[str], TransactionDescription | None],
) -> list[OpenTransaction]:
    """Return the transactions that no coordinator will end.

    Args:
        ids: transactional ids by producer id, as the coordinators know them.
        describe: the state of a transactional id; None if it is unknown.
    """
    descriptions = {name: describe(name) for name in dict.fromkeys(ids.values())}
    left = []
    for opened_log in opened:
        description = descriptions.get(ids.get(opened_log.producer.producer_id, ""))
        # A coordinator names the partitions that still get its marker.
        if description is None or opened_log.partition not in description.partitions:
            left.append(opened_log)
    return left


def find_hanging(client: WireClient, opened: Sequence[OpenTransaction]) -> list[OpenTransaction]:
    """Return those of the open transactions that no coordinator will end.

    Raises:
        ApiError: a coordinator refused.
        ClientError: a broker could not be asked.
    """
    if not opened:
        return []
    producers = {opened_log.producer.producer_id for opened_log in opened}
    listed = list_transactions(client, producer_ids=sorted(producers))
    ids = {entry.producer_id: entry.transactional_id for entry in listed}

    def describe(transactional_id: str) -> TransactionDescription | None:
        try:
            return describe_transaction(client, transactional_id)
        except ApiError as error:
            if error.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                return None
            raise

    return hanging(opened, ids, describe)
