"""Mutants of transactions: the histories of the transactional clients must show each of them."""

from typing import Any, Final

from spindle.coordinator.offset_store import OffsetStore
from spindle.coordinator.transactions import shard
from spindle.coordinator.transactions.shard import TransactionShard
from spindle.coordinator.transactions.transaction_table import MarkedTransaction
from spindle.log.formats.transaction_index import AbortedTransaction
from spindle.log.producers.state import ProducerState
from spindle.log.segments.transaction_index import TransactionIndex
from spindle.protocol.records.batch import NO_PRODUCER_ID
from spindle.runtime.coordinator.offset_verification import OffsetVerification
from verification.simulation.mutant import Function, Mutant, always, nothing


def _commit_all(original: Function) -> Function:
    """Keep the offsets of aborted transactions."""
    return lambda self, producer_id, is_commit: original(self, producer_id, True)


def _nothing_unstable(original: Function) -> property:
    """Let the last stable offset pass open transactions."""
    return property(lambda self: None)


def _decide_again(original: Function) -> Function:
    """Write the markers of commits for transactions whose abort was decided."""

    def marked(found: Any) -> Any:
        return original(found)._replace(is_commit=True)

    return marked


def _mark_at_once(original: Function) -> Function:
    """Write the markers when the end is decided, before its record is committed."""

    def change(self: Any, found: Any, new: Any, out: Any) -> None:
        original(self, found, new, out)
        if new.state.is_prepared and new.partitions:
            marked = MarkedTransaction(
                found.name, new.producer_id, new.producer_epoch, new.is_commit, new.client_version
            )
            self._write_markers(marked, new.partitions)

    return change


def _keep_epoch(original: Function) -> Function:
    """Abort an open transaction and leave its producer the same epoch."""

    def fenced(found: Any, version: int, new_producer_id: Any, now_ms: int) -> Any:
        return found.metadata.prepared(
            is_commit=False, client_version=0, next_producer_id=NO_PRODUCER_ID, now_ms=now_ms
        )

    return fenced


def _count_later_transactions(original: Function) -> Function:
    """Index a last stable offset that may lie behind the marker."""

    def after(self: Any, completed: Any) -> Any:
        others = (at for at, owner in self._ongoing.items() if owner != completed.producer_id)
        return next(others, completed.last_offset + 1)

    return after


def _believe_index(original: Function) -> Function:
    """End the search for aborted transactions where the indexed last stable offset says so."""
    return lambda self, end_offset: self.last_stable_offset >= end_offset


async def _ask_nobody(*_: Any) -> None:
    """Take offsets without asking whether their partition belongs to the transaction."""


TRANSACTION_MUTANTS: Final[dict[str, Mutant]] = {
    "aborted transactions committed": Mutant(shard, "_marked", _decide_again),
    "aborted transactions not indexed": Mutant(TransactionIndex, "append", nothing),
    "aborted transactions indexed past later ones": Mutant(
        ProducerState,
        "last_stable_offset_after",
        _count_later_transactions,
        (Mutant(AbortedTransaction, "precedes_none_below", _believe_index),),
    ),
    "last stable offset past open transactions": Mutant(
        ProducerState, "first_unstable_offset", _nothing_unstable
    ),
    "offsets of aborted transactions kept": Mutant(OffsetStore, "end_transaction", _commit_all),
    "offsets not verified": Mutant(OffsetVerification, "verify", lambda _: _ask_nobody),
    "markers before the decision is committed": Mutant(
        TransactionShard,
        "_change",
        _mark_at_once,
        (Mutant(TransactionShard, "is_marking", always(True)),),
    ),
    "epoch kept at a fence": Mutant(shard, "fenced", _keep_epoch),
    "old transactions stay open": Mutant(TransactionShard, "_abort_timed_out", nothing),
    "decided transactions not continued": Mutant(
        TransactionShard, "_begin_marking", lambda _: lambda self, found, now_ms: True
    ),
}
