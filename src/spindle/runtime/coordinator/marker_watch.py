"""Markers that arrive while a transaction is verified: the answer may be about an earlier one."""

from collections.abc import Awaitable, Callable

from spindle.common.ids import TopicPartition

VerifyOffsets = Callable[[TopicPartition], Awaitable[None]]
"""Asks whether a partition of `__consumer_offsets` belongs to the producer's open transaction.

Raises:
    ApiError: it does not, or the coordinator could not be asked.
"""


class _Verifying:
    """A verification under way; `is_outdated` if a marker of the producer came since it began."""

    def __init__(self) -> None:
        self.is_outdated = False


class MarkerWatch:
    """The verifications under way, by partition and producer id."""

    def __init__(self) -> None:
        self._under_way: dict[tuple[int, int], list[_Verifying]] = {}

    async def verify(
        self, partition: TopicPartition, producer_id: int, verify: VerifyOffsets
    ) -> None:
        """Verify until no marker of the producer has come meanwhile; it raises as `verify` does."""
        key = (partition.partition, producer_id)
        while True:
            verifying = _Verifying()
            self._under_way.setdefault(key, []).append(verifying)
            try:
                await verify(partition)
            finally:
                self._under_way[key].remove(verifying)
                if not self._under_way[key]:
                    del self._under_way[key]
            if not verifying.is_outdated:
                return

    def has_come(self, partition: int, producer_id: int) -> None:
        """Note a marker."""
        for verifying in self._under_way.get((partition, producer_id), ()):
            verifying.is_outdated = True
