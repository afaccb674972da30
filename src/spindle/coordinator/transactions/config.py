"""The settings of transactions, from the broker's configuration (defaults are Kafka's)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TransactionsConfig:
    """Settings of all transactions of a broker. Each field names its `server.properties` key."""

    max_timeout_ms: int = 900_000
    """`transaction.max.timeout.ms`."""
    abort_interval_ms: int = 10_000
    """`transaction.abort.timed.out.transaction.cleanup.interval.ms`."""
    expiration_ms: int = 604_800_000
    """`transactional.id.expiration.ms`."""
    expiration_interval_ms: int = 3_600_000
    """`transaction.remove.expired.transaction.cleanup.interval.ms`."""
    allows_two_phase_commit: bool = False
    """`transaction.two.phase.commit.enable`."""
    append_retry_ms: int = 100
    """Pause before the completion of a transaction is appended again. Not configurable."""
