"""Checks that no marker ends a transaction before the decision is committed.

The coordinator would forget the decision if it died now, and its successor could decide otherwise.
"""

from collections.abc import Iterable
from typing import NamedTuple

from spindle.coordinator.transactions.records import parse_transaction
from spindle.protocol.records.batch import BatchHeader
from spindle.protocol.records.control import EndTransactionMarker
from spindle.protocol.records.record import Record
from verification.simulation.verdict import Verdict


class _Decision(NamedTuple):
    """The end of one transaction, as a record of `__transaction_state` and a marker tell it."""

    producer_id: int
    producer_epoch: int
    is_commit: bool


class DecisionOracle:
    """All committed decisions of the transaction coordinators."""

    def __init__(self, verdict: Verdict) -> None:
        self._verdict = verdict
        self._decisions: dict[_Decision, None] = {}

    def committed(self, records: Iterable[Record]) -> None:
        """Note the next committed records of `__transaction_state`."""
        for record in records:
            transaction = parse_transaction(record.key, record.value, record.offset)
            if (
                transaction is not None
                and transaction.metadata is not None
                and transaction.metadata.state.is_prepared
            ):
                decided = transaction.metadata
                self._decisions[
                    _Decision(decided.producer_id, decided.producer_epoch, decided.is_commit)
                ] = None

    def marked(self, where: str, header: BatchHeader, marker: EndTransactionMarker) -> None:
        """Check a marker that is committed in a partition."""
        wanted = _Decision(header.producer_id, header.producer_epoch, marker.is_commit)
        self._verdict.check(
            wanted in self._decisions,
            f"{where} has at offset {header.base_offset} a marker of {wanted}, which is not "
            "committed",
        )
