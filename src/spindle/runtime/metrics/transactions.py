"""Metrics of transactions: their coordinator, its markers, and the verification by leaders."""

from collections import Counter
from collections.abc import Iterator, Mapping

from prometheus_client import Metric

from spindle.coordinator.transactions.metadata import TransactionState
from spindle.runtime.coordinator.transaction_coordinator import TransactionCoordinator
from spindle.runtime.coordinator.transaction_verification import CoordinatorQuestions
from spindle.runtime.metrics.families import counter, duration_metrics, gauge, gauges
from spindle.serving.cooperative import cooperatively


async def count_transactions(
    transactions: TransactionCoordinator,
) -> Mapping[TransactionState, int]:
    """Return the transactional ids by state, with pauses for other work."""
    states: Counter[TransactionState] = Counter()
    for driver in transactions.shards:
        async for transaction in cooperatively(list(driver.shard.ids)):
            states[transaction.metadata.state] += 1
    return states


def transaction_metrics(
    transactions: TransactionCoordinator, states: Mapping[TransactionState, int]
) -> Iterator[Metric]:
    """Yield the metrics of the transaction coordinator."""
    prefix = "kafka_server_transaction_coordinator_metrics"
    yield from duration_metrics(
        f"{prefix}_partition_load_time",
        "Time to load a partition of __transaction_state.",
        transactions.loads,
    )
    yield gauge(
        f"{prefix}_num_partitions",
        "Partitions of __transaction_state whose coordinator is this broker.",
        len(transactions.shards.by_partition),
    )
    yield gauges(
        f"{prefix}_transactional_id_count",
        "Transactional ids that this broker coordinates, by state.",
        [({"state": state.wire_name}, count) for state, count in sorted(states.items())],
    )
    markers = transactions.markers
    prefix = "kafka_coordinator_transaction_transaction_marker_channel_manager"
    yield gauges(
        f"{prefix}_queue_size",
        "Markers that are not written yet, by the broker that leads their partition.",
        [({"broker": str(broker)}, count) for broker, count in markers.unwritten_by_broker()],
    )
    yield gauge(
        f"{prefix}_unknown_destination_queue_size",
        "Markers whose partition has no leader.",
        markers.without_leader_count,
    )
    yield gauge(
        f"{prefix}_retry_queue_size",
        "Markers that are sent again, because a leader did not write them.",
        markers.retry_count,
    )
    retrying = sum(len(driver.shard.retrying) for driver in transactions.shards)
    yield gauge(
        f"{prefix}_log_append_retry_queue_size",
        "Transactions with all their markers whose completion could not be appended yet.",
        markers.unreported_count + retrying,
    )


def verification_metrics(questions: CoordinatorQuestions) -> Iterator[Metric]:
    """Yield the metrics of the verification of transactions (KIP-890)."""
    prefix = "kafka_server_add_partitions_to_txn_manager_verification"
    yield from duration_metrics(
        f"{prefix}_time",
        "Time to verify with its coordinator that partitions belong to a transaction.",
        questions.times,
    )
    yield counter(
        f"{prefix}_failures",
        "Partitions that could not be verified to belong to a transaction.",
        questions.failures,
    )
