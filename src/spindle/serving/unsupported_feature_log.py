"""Warnings about requests for unsupported features or for damaged records.

The error code that such a client gets may point to another cause, so the broker's log names the
client and the feature, or the damage. A client that tries again and again does not fill the log.
"""

import logging
from collections.abc import Callable

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TRANSACTIONS_TOPIC, TopicPartition
from spindle.common.log_throttle import LogThrottle
from spindle.common.text import quoted
from spindle.serving.context import RequestContext

log = logging.getLogger(__name__)


class RefusalLog:
    """Writes one warning in 10 minutes per client and cause.

    A client is a client id at an address. `steady_ms` is a monotonic clock in milliseconds.
    """

    def __init__(self, steady_ms: Callable[[], int]) -> None:
        self._seldom = LogThrottle(steady_ms)

    def warn(self, context: RequestContext, cause: str, detail: str) -> None:
        """Warn that a request of this client is refused.

        Args:
            context: The request.
            cause: The feature that is missing, in the same words every time.
            detail: the refused request, and what the client can do instead.
        """
        if not self._seldom.allow((context.client_id, context.client_address, cause)):
            return
        log.warning(
            "client %s at %s (%s %s): %s: %s",
            quoted(context.client_id),
            context.client_address,
            context.client_software_name,
            context.client_software_version,
            cause,
            detail,
        )

    def report_damage(self, topic_partition: TopicPartition, damage: ApiError) -> None:
        """Log once in 10 minutes that records of a partition cannot be read, and where.

        It is an error if the file is damaged, a warning if a client has written such a batch.
        """
        if self._seldom.allow((topic_partition, damage.code)):
            is_rotten = damage.code == ErrorCode.CORRUPT_MESSAGE
            log.log(
                logging.ERROR if is_rotten else logging.WARNING,
                "records of %s cannot be read, other partitions are not affected: %s",
                topic_partition,
                damage,
            )


def warn_of_no_transactions_topic(
    refusals: RefusalLog, context: RequestContext, transactional_id: str
) -> None:
    """Warn that a transactional producer has no coordinator to ask, so that it waits for nothing.

    Its topic cannot be created if it wants more replicas than there are brokers.
    """
    refusals.warn(
        context,
        "transactions have no coordinator",
        f"{TRANSACTIONS_TOPIC} cannot be created, so init_transactions of transactional.id "
        f"{quoted(transactional_id)} times out; start more brokers, or lower "
        "transaction.state.log.replication.factor",
    )
