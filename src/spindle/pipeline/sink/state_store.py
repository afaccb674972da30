"""The state of a query in the cluster, changed by one writer at a time.

Every change is a transaction of the transactional id of the query: a new producer epoch fences the
writer before, then the state is read, then the new one is committed. So a change is based on the
state that it replaces, or fails and is tried again.
"""

import random
import time
from collections.abc import Callable, Mapping
from typing import Final

from spindle.client.admin.transactions import (
    describe_transaction,
    list_transactions,
    terminate_transaction,
)
from spindle.client.blocking.client import WireClient
from spindle.client.blocking.coordinators import CoordinatorCache
from spindle.client.blocking.transactions import (
    ProducerTransaction,
    end_transaction,
    stable_offsets,
)
from spindle.client.errors import RequestTimedOut
from spindle.client.transactions import FENCED, StoredOffset, TransactionEnd, is_fenced
from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicPartition
from spindle.pipeline.sink.errors import OutcomeUnknown, SinkError
from spindle.pipeline.sink.state import QueryState, TaskTransaction, decode_state, encode_state

_STATE_TIMEOUT_MS: Final = 10_000
_MAX_PAUSE_S: Final = 0.2
_MAX_PAUSE_AFTER_LOSS_S: Final = 5.0
_LOOKS: Final = 5
_ABORTED_STATES: Final = ("PrepareAbort", "CompleteAbort", "PrepareEpochFence")
_ENDED_BY_OTHERS: Final = (*FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING)

Change = Callable[[QueryState | None], QueryState]


class QueryRegister:
    """The state and the transactions of one query.

    Args:
        query: The id of the query, or of the batch write.
        prefix: The names of group and transactional ids begin with it.
        topic: A topic that exists; the offsets of the group are stored in its name.
    """

    def __init__(self, client: WireClient, query: str, *, prefix: str, topic: str) -> None:
        self.client = client
        self.coordinators = CoordinatorCache(client)
        self.group_id = f"{prefix}-{query}"
        self._topic = topic
        self._head = TopicPartition(topic, 0)

    def transactional_id(self, run: str, attempt: str) -> str:
        """Return the transactional id of an attempt of a task."""
        return f"{self.group_id}-{run}-{attempt}"

    def read(self) -> QueryState | None:
        """Return the state, None if the query has none yet; wait while it is being changed.

        Raises:
            SinkError: the state is not readable.
            ApiError: the cluster refused.
            ClientError: no broker could be asked.
        """
        return self._decoded(stable_offsets(self.coordinators, self.group_id, self._head))

    def read_nowait(self) -> QueryState | None:
        """Return the state as `read` does; None also if its change takes long.

        The process that changes it may have died.
        """
        for _ in range(_LOOKS):
            stored = stable_offsets(self.coordinators, self.group_id, self._head, waits=False)
            if stored is not None:
                return self._decoded(stored)
            time.sleep(random.uniform(0, _MAX_PAUSE_S))
        return None

    def _decoded(self, stored: Mapping[TopicPartition, StoredOffset] | None) -> QueryState | None:
        return decode_state(
            {
                partition.partition: offset
                for partition, offset in (stored or {}).items()
                if partition.topic == self._topic
            }
        )

    def change(self, change: Change) -> QueryState:
        """Replace the state by what `change` makes of it, as one step; return the new one.

        `change` may be called several times. If it returns its argument, nothing is written.

        Raises:
            SinkError: as `change` raises it, or the state does not fit.
            ApiError: the cluster refused.
            ClientError: no broker could be asked, or others were faster until the API timeout.
        """
        deadline = time.monotonic() + self.client.settings.api_timeout_ms / 1000
        pause_s = _MAX_PAUSE_S
        while time.monotonic() < deadline:
            writer = ProducerTransaction(self.coordinators, self.group_id, _STATE_TIMEOUT_MS)
            before = self.read()
            after = change(before)
            if after is before:
                return after
            try:
                writer.commit_offsets(self.group_id, self._placed(encode_state(after)))
                if writer.end(commit=True) is TransactionEnd.COMMITTED:
                    return after
            except ApiError as error:
                if not is_fenced(error):
                    raise
            # Each writer stops the one before it, so many at once must not all come back soon.
            time.sleep(random.uniform(0, pause_s))
            pause_s = min(2 * pause_s, _MAX_PAUSE_AFTER_LOSS_S)
            seen = self.read_nowait()
            if seen is not None and change(seen) is seen:
                return seen
        raise RequestTimedOut(f"the state of {self.group_id} could not be changed: others did")

    def settled(self) -> QueryState | None:
        """Return the state after all running changes have succeeded or failed."""
        ProducerTransaction(self.coordinators, self.group_id, _STATE_TIMEOUT_MS)
        return self.read()

    def _placed(self, parts: list[StoredOffset]) -> dict[TopicPartition, StoredOffset]:
        if len(parts) > 1:
            existing = len(self.client.metadata([self._topic]).topic(self._topic).partitions)
            if len(parts) > existing:
                raise SinkError(
                    f"the batch has too many tasks for topic {self._topic!r}, in whose name the "
                    f"decision is stored: it takes {len(parts)} partitions, there are {existing}. "
                    "Use fewer tasks (coalesce) or option stateTopic with a wider topic"
                )
        return {TopicPartition(self._topic, number): part for number, part in enumerate(parts)}

    def finish(self, run: str, transaction: TaskTransaction) -> TransactionEnd:
        """Commit a decided transaction; return ABORTED if it was aborted before.

        Raises:
            OutcomeUnknown: another producer has used the transactional id since.
            ApiError: the coordinator refused.
            ClientError: no broker could be asked.
        """
        name = self.transactional_id(run, transaction.attempt)
        try:
            end = end_transaction(self.coordinators, name, transaction.identity, commit=True)
            if end is TransactionEnd.COMMITTED:
                return end
            state = describe_transaction(self.client, name).state
        except ApiError as error:
            if error.code not in (*_ENDED_BY_OTHERS, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND):
                raise
            state = error.code.name
        if state in _ABORTED_STATES:
            return TransactionEnd.ABORTED
        raise OutcomeUnknown(
            f"transaction {name} was to be committed, and its state is {state}: somebody used the "
            "transactional id since, or it expired. The cluster does not tell whether its "
            f"{transaction.digest.rows} rows are committed; look at the topic "
            "(docs/guide/streaming.md)"
        )

    def is_open(self, run: str, attempt: str) -> bool:
        """Return True if an attempt with this id has begun a transaction that has not ended.

        Raises:
            ApiError: the coordinator refused.
            ClientError: no broker could be asked.
        """
        try:
            transaction = describe_transaction(self.client, self.transactional_id(run, attempt))
        except ApiError as error:
            if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise
            return False
        return transaction.state == "Ongoing"

    def abort(self, run: str, attempt: str) -> None:
        """Abort the transaction of an attempt if it is open, and fence its producer."""
        terminate_transaction(self.client, self.transactional_id(run, attempt))

    def abort_open(self, runs: tuple[str, ...]) -> int:
        """Abort the open transactions of these runs; return how many there were.

        Raises:
            ApiError: the cluster refused.
            ClientError: a broker could not be asked, or does not list transactions (before 3.0).
        """
        starts = tuple(self.transactional_id(run, "") for run in runs)
        if not starts:
            return 0
        lost = [
            transaction.transactional_id
            for transaction in list_transactions(self.client, states=("Ongoing",))
            if transaction.transactional_id.startswith(starts)
        ]
        for name in lost:
            terminate_transaction(self.client, name)
        return len(lost)

    def check_open(self, run: str, transactions: tuple[TaskTransaction, ...]) -> None:
        """Raise SinkError unless all these transactions can still be committed."""
        for transaction in transactions:
            name = self.transactional_id(run, transaction.attempt)
            description = describe_transaction(self.client, name)
            epochs = (description.producer_id, description.producer_epoch)
            if description.state != "Ongoing" or epochs != transaction.identity:
                raise SinkError(
                    f"the transaction {name} of task {transaction.task} is {description.state} "
                    "with producer "
                    f"epoch {description.producer_epoch} before its batch is complete; it had "
                    "epoch "
                    f"{transaction.identity.epoch}. If the batch took longer than "
                    f"kafka.transaction.timeout.ms ({description.timeout_ms}), raise it, or make "
                    "batches smaller. Nothing of the batch is committed"
                )
