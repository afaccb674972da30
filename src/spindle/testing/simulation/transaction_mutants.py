"""Mutants of transactions: the histories of the transactional clients must show each of them."""

from typing import Any, Final

from spindle.coordinator.offset_store import OffsetStore
from spindle.coordinator.transactions import shard
from spindle.coordinator.transactions.shard import TransactionShard
from spindle.log.producers.state import ProducerState
from spindle.log.segments.transaction_index import TransactionIndex
from spindle.runtime.coordinator.offset_verification import OffsetVerification
from spindle.testing.simulation.mutant import Function, Mutant, nothing


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


async def _ask_nobody(*_: Any) -> None:
    """Take offsets without asking whether their partition belongs to the transaction."""


TRANSACTION_MUTANTS: Final[dict[str, Mutant]] = {
    "aborted transactions committed": Mutant(shard, "_marked", _decide_again),
    "aborted transactions not indexed": Mutant(TransactionIndex, "append", nothing),
    "last stable offset past open transactions": Mutant(
        ProducerState, "first_unstable_offset", _nothing_unstable
    ),
    "offsets of aborted transactions kept": Mutant(OffsetStore, "end_transaction", _commit_all),
    "offsets not verified": Mutant(OffsetVerification, "verify", lambda _: _ask_nobody),
    "old transactions stay open": Mutant(TransactionShard, "_abort_timed_out", nothing),
    "decided transactions not continued": Mutant(
        TransactionShard, "_begin_marking", lambda _: lambda self, found, now_ms: True
    ),
}
