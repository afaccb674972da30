"""Broker keys: transactions (KIP-98, KIP-890, KIP-939)."""

from spindle.config.definition import BOOLEAN, CLUSTER_WIDE, INT, READ_ONLY, SHORT, ConfigKey
from spindle.config.no_effect import FIXED_TRANSACTIONS_BUFFER
from spindle.config.validators import Range

# fmt: off
TRANSACTIONS_KEYS = (
    ConfigKey("add.partitions.to.txn.retry.backoff.max.ms", INT, 100, Range(0), READ_ONLY,
              "Time for which adding a partition is tried again while the producer's last "
              "transaction is being ended."),
    ConfigKey("add.partitions.to.txn.retry.backoff.ms", INT, 20, Range(1), READ_ONLY,
              "Pause before a partition is added to a transaction again."),
    ConfigKey("transaction.abort.timed.out.transaction.cleanup.interval.ms", INT, 10_000, Range(1),
              READ_ONLY,
              "Pause between two searches for transactions that ran out of time."),
    ConfigKey("transaction.max.timeout.ms", INT, 900_000, Range(1), READ_ONLY,
              "Longest transaction timeout that a producer may ask for."),
    ConfigKey("transaction.partition.verification.enable", BOOLEAN, True, None, CLUSTER_WIDE,
              "Whether a partition checks that a transactional write belongs to a running "
              "transaction."),
    ConfigKey("transaction.remove.expired.transaction.cleanup.interval.ms", INT, 3_600_000,
              Range(1), READ_ONLY,
              "Pause between two removals of expired transactional ids."),
    ConfigKey("transaction.state.log.load.buffer.size", INT, 5_242_880, Range(1), READ_ONLY,
              "Number of bytes that are read at once when transactions are loaded.",
              no_effect=FIXED_TRANSACTIONS_BUFFER),
    ConfigKey("transaction.state.log.min.isr", INT, 2, Range(1), READ_ONLY,
              "The min.insync.replicas of the transaction log."),
    ConfigKey("transaction.state.log.num.partitions", INT, 50, Range(1), READ_ONLY,
              "Number of partitions of the transaction log; fixed once it exists."),
    ConfigKey("transaction.state.log.replication.factor", SHORT, 3, Range(1), READ_ONLY,
              "Replication factor of the transaction log."),
    ConfigKey("transaction.state.log.segment.bytes", INT, 104_857_600, Range(1), READ_ONLY,
              "Segment size of the transaction log."),
    ConfigKey("transaction.two.phase.commit.enable", BOOLEAN, False, None, READ_ONLY,
              "Whether producers may take part in a two-phase commit with another system."),
    ConfigKey("transactional.id.expiration.ms", INT, 604_800_000, Range(1), READ_ONLY,
              "Time after which a transactional id without activity is forgotten."),
)
# fmt: on
