"""The verification of a transaction before its first records in a partition (KIP-890).

The leader asks the transaction's coordinator whether the partition belongs to the transaction. A
late response must not admit records to the producer's next transaction. So the leader keeps a
`VerificationGuard` from the request until the first records or a marker are appended, and records
of a transaction that is not open in the partition need the current `VerificationGuard`.
"""

from typing import Final, NamedTuple


class VerificationGuard:
    """A verification in progress; its identity is the guard.

    Attributes:
        begun_ms: when it began, on the wall clock.
        lowest_sequence: the lowest first sequence of `producer_epoch` for which verification was
        requested. Batches
            with a higher one are refused until it is appended, so that a batch whose verification
            fails can be sent again.
        adds_partitions: the partition is added implicitly, by a producer whose sequences begin at 0
            in every transaction (transaction version 2).
    """

    __slots__ = ("adds_partitions", "begun_ms", "lowest_sequence", "producer_epoch")

    def __init__(
        self, begun_ms: int, sequence: int, producer_epoch: int, *, adds_partitions: bool
    ) -> None:
        self.begun_ms = begun_ms
        self.lowest_sequence = sequence
        self.producer_epoch = producer_epoch
        self.adds_partitions = adds_partitions

    def note(self, sequence: int, producer_epoch: int) -> None:
        """Record that another batch needs the verification."""
        if producer_epoch > self.producer_epoch:
            self.producer_epoch = producer_epoch
            self.lowest_sequence = sequence
        elif producer_epoch == self.producer_epoch:
            self.lowest_sequence = min(self.lowest_sequence, sequence)


class TransactionContext(NamedTuple):
    """The leader's information about a transactional append beside its records.

    Attributes:
        verification: the verification that the coordinator has confirmed.
        transaction_version: that of the coordinator that ends a transaction with a marker. From
            version 2 on, a marker has a higher epoch than the records that it ends.
    """

    verification: VerificationGuard | None = None
    transaction_version: int = 0


NO_TRANSACTION: Final = TransactionContext()
