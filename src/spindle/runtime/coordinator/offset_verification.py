"""The verification of offsets in transactions (KIP-890), once for each transaction.

If a marker arrives during a verification, the response may be about an earlier transaction.
"""

from collections.abc import Awaitable, Callable

from spindle.common.ids import TopicPartition

VerifyOffsets = Callable[[TopicPartition], Awaitable[None]]
"""Asks whether a partition of `__consumer_offsets` belongs to the producer's open transaction.

Raises:
    ApiError: it does not, or the coordinator could not be asked.
"""


class _Verifying:
    """A running verification; `is_outdated` if a marker of the producer has arrived meanwhile."""

    def __init__(self) -> None:
        self.is_outdated = False


class OffsetVerification:
    """The transactions that are verified, or are being verified, by partition and producer id."""

    def __init__(self) -> None:
        self._under_way: dict[tuple[int, int], list[_Verifying]] = {}
        self._verified: dict[tuple[int, int], int] = {}
        """The producer epoch of each transaction that is verified and has no marker yet."""

    async def verify(
        self,
        partition: TopicPartition,
        producer_id: int,
        producer_epoch: int,
        verify: VerifyOffsets,
    ) -> None:
        """Return when the transaction is verified; repeat the request if a marker arrives first.

        A transaction stays verified until its marker arrives. Pass the offsets to the shard at
        once, so that they precede the marker in the log.

        Raises:
            ApiError: as `verify`.
        """
        key = (partition.partition, producer_id)
        while self._verified.get(key) != producer_epoch:
            verifying = _Verifying()
            self._under_way.setdefault(key, []).append(verifying)
            try:
                await verify(partition)
            finally:
                self._under_way[key].remove(verifying)
                if not self._under_way[key]:
                    del self._under_way[key]
            if not verifying.is_outdated:
                self._verified[key] = producer_epoch

    def note_marker(self, partition: int, producer_id: int) -> None:
        """Record a marker, before it is passed to the shard."""
        key = (partition, producer_id)
        self._verified.pop(key, None)
        for verifying in self._under_way.get(key, ()):
            verifying.is_outdated = True

    def forget(self, partition: int) -> None:
        """Verify all transactions again: other coordinators may write markers from now on."""
        for key in [key for key in self._verified if key[0] == partition]:
            del self._verified[key]
        for key, waiting in self._under_way.items():
            if key[0] == partition:
                for verifying in waiting:
                    verifying.is_outdated = True
