"""Deliberate mistakes with share groups, each of which the simulation must find."""

from typing import Any, Final

from spindle.coordinator.share.share_partition import SharePartition
from spindle.runtime.coordinator.share_state_client import ShareStateClient
from spindle.runtime.share.led_partition import LedSharePartition
from verification.simulation.mutant import Function, Mutant, nothing


async def _store_nothing(self: Any, key: Any, written: Any) -> None:
    """Confirm what was not stored."""


def _read_no_batches(original: Function) -> Function:
    """Begin with the stored start offset, and with nothing of the records behind it."""

    async def read(self: Any) -> SharePartition:
        stored = await original(self)
        return SharePartition(stored.start_offset, stored.state_epoch)

    return read


def _store_no_counts(original: Function) -> Function:
    """Store records with a delivery count of 0."""

    def begin_write(self: Any) -> Any:
        write = original(self)
        if write is None:
            return None
        batches = [batch._replace(delivery_count=0) for batch in write.batches]
        return write._replace(batches=batches)

    return begin_write


SHARE_MUTANTS: Final[dict[str, Mutant]] = {
    "acknowledgements confirmed but not stored": Mutant(
        ShareStateClient, "write", lambda _: _store_nothing
    ),
    "delivery counts not stored": Mutant(SharePartition, "begin_write", _store_no_counts),
    "locks of silent workers kept": Mutant(LedSharePartition, "_set_lock_timer", nothing),
    "records in flight not read again": Mutant(LedSharePartition, "_read_state", _read_no_batches),
}
