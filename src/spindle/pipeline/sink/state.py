"""The state of a query in the cluster: the run that owns it, and the last decided batch.

A decision names the transactions that make up a batch. It is stored as committed offsets of a
group: partition 0 has the head as JSON, the following partitions the entries as text.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

from spindle.client.transactions import ProducerIdentity, StoredOffset
from spindle.pipeline.sink.errors import SinkError, SinkReplaced

_FORMAT: Final = 1
_CHUNK_CHARACTERS: Final = 3900
"""Brokers take at most `offset.metadata.max.bytes` of text, by default 4096."""
_FORMER_RUNS: Final = 64


@dataclass(frozen=True, slots=True)
class RowsDigest:
    """The rows of one task, whatever their order: their count and two sums of hashes."""

    rows: int = 0
    sums: tuple[int, int] = (0, 0)

    def __str__(self) -> str:
        return f"{self.rows}:{self.sums[0]:016x}{self.sums[1]:016x}"

    @classmethod
    def of_text(cls, text: str) -> Self:
        """Return the digest that `str` wrote."""
        rows, sums = text.split(":")
        return cls(int(rows), (int(sums[:16], 16), int(sums[16:], 16)))


@dataclass(frozen=True, slots=True)
class TaskTransaction:
    """The transaction in which a task wrote its rows.

    Attributes:
        task: The number of the task, from 0.
        attempt: The end of the transactional id, which differs between attempts of a task and
            between batches.
        is_committed: True if the transaction is known to be committed. False only means that
            nothing is recorded yet, or that it was aborted (see `is_aborted`).
    """

    task: int
    attempt: str
    identity: ProducerIdentity
    digest: RowsDigest
    is_committed: bool = False
    is_aborted: bool = False

    def encode(self) -> str:
        """Return the text form."""
        mark = "c" if self.is_committed else "a" if self.is_aborted else "?"
        producer_id, epoch = self.identity
        return f"{self.task} {self.attempt} {producer_id} {epoch} {mark} {self.digest}"

    @classmethod
    def decode(cls, text: str) -> Self:
        """Return the transaction of a text form."""
        task, attempt, producer_id, epoch, mark, digest = text.split(" ")
        return cls(
            int(task),
            attempt,
            ProducerIdentity(int(producer_id), int(epoch)),
            RowsDigest.of_text(digest),
            mark == "c",
            mark == "a",
        )


@dataclass(frozen=True, slots=True)
class BatchDecision:
    """Which transactions make up a batch.

    Attributes:
        run: The run whose transactions are to be committed.
        tasks: The number of tasks of the batch; a task without rows has no transaction.
    """

    batch: int
    run: str
    tasks: int
    transactions: tuple[TaskTransaction, ...]

    def of_task(self, task: int) -> TaskTransaction | None:
        """Return the transaction of a task, None if it had no rows."""
        return next(
            (transaction for transaction in self.transactions if transaction.task == task), None
        )

    @property
    def is_partial(self) -> bool:
        """True if a transaction was aborted, so that its rows have to be written again."""
        return any(transaction.is_aborted for transaction in self.transactions)


@dataclass(frozen=True, slots=True)
class QueryState:
    """The owner of a query and its last decision; `former` are owners before, latest first."""

    owner: str
    former: tuple[str, ...] = ()
    decision: BatchDecision | None = None

    def owned_by(self, run: str) -> Self:
        """Return the state after another run has begun.

        Raises:
            SinkReplaced: this run was replaced before.
        """
        if run in self.former:
            raise SinkReplaced(
                f"run {run} of the query was replaced by run {self.owner}: two drivers work on "
                "one checkpoint (or with one writeId). Stop this one"
            )
        return replace(self, owner=run, former=(self.owner, *self.former)[:_FORMER_RUNS])

    def turn_after(self, run: str) -> int:
        """Return the turn, 0 or 1, at the end of the transactional ids of the run's next batch.

        It is not that of the last decision. So the ids of decided transactions stay as they are
        until another batch is decided, and the coordinator knows their outcome.
        """
        decision = self.decision
        if decision is None or decision.run != run or not decision.transactions:
            return 0
        return 1 - int(decision.transactions[-1].attempt.rpartition("-")[2])

    def check_owner(self, run: str) -> None:
        """Raise SinkReplaced unless the run owns the query."""
        if self.owner != run:
            raise SinkReplaced(
                f"run {run} of the query was replaced by run {self.owner}, so it may commit "
                "nothing any more: two drivers work on one checkpoint (or with one writeId)"
            )

    def check_batch(self, batch: int) -> None:
        """Raise SinkError if a later batch is decided."""
        if self.decision is not None and self.decision.batch > batch:
            raise SinkError(
                f"batch {batch} comes after batch {self.decision.batch}, which is decided: the "
                "checkpoint was set back, or an old driver is still running. Writing the batch "
                "could store its rows twice"
            )

    def decision_of(self, batch: int) -> BatchDecision | None:
        """Return the decision of this batch, None if there is none."""
        return self.decision if self.decision and self.decision.batch == batch else None


def encode_state(state: QueryState) -> list[StoredOffset]:
    """Return the offsets of the partitions 0, 1, ... that store a state."""
    decision = state.decision
    batch = decision.batch if decision else 0
    chunks: list[str] = []
    for transaction in decision.transactions if decision else ():
        text = transaction.encode()
        if chunks and len(chunks[-1]) + 1 + len(text) <= _CHUNK_CHARACTERS:
            chunks[-1] += "," + text
        else:
            chunks.append(text)
    head: dict[str, object] = {"v": _FORMAT, "owner": state.owner, "former": list(state.former)}
    if decision:
        head["decision"] = [decision.batch, decision.run, decision.tasks, len(chunks)]
    text = json.dumps(head, separators=(",", ":"))
    return [StoredOffset(batch, part) for part in (text, *chunks)]


def decode_state(stored: Mapping[int, StoredOffset]) -> QueryState | None:
    """Return the state that partitions store, None if there is none.

    Raises:
        SinkError: another program, or another version of this one, wrote it, or a part is missing.
    """
    if 0 not in stored:
        return None
    try:
        head = json.loads(stored[0].metadata)
        version, owner, former = head["v"], head["owner"], tuple(head["former"])
        decision = head.get("decision")
    except (ValueError, TypeError, KeyError):
        raise SinkError(f"the state of the query is not readable: {stored[0].metadata!r}") from None
    if version != _FORMAT:
        raise SinkError(f"the state of the query has format {version}, want {_FORMAT}")
    if decision is None:
        return QueryState(owner, former)
    batch, run, tasks, chunks = decision
    missing = [n for n in range(1, chunks + 1) if n not in stored]
    if missing:
        raise SinkError(f"the state of the query lacks the offsets of partitions {missing}")
    return QueryState(
        owner, former, BatchDecision(batch, run, tasks, _transactions(stored, chunks))
    )


def _transactions(stored: Mapping[int, StoredOffset], chunks: int) -> tuple[TaskTransaction, ...]:
    texts: Sequence[str] = [stored[n].metadata for n in range(1, chunks + 1)]
    return tuple(TaskTransaction.decode(one) for text in texts for one in text.split(","))
