"""The committed log of a simulated quorum: every node must come to the same."""

from spindle.common.ids import OffsetAndEpoch
from verification.simulation.verdict import InvariantViolated


class CommittedOracle:
    """The committed log by offsets and digests."""

    def __init__(self) -> None:
        self.end_offset = 0
        self._after: dict[int, tuple[int, bytes]] = {0: (0, b"")}
        self._digests: dict[int, bytes] = {0: b""}

    def commit(self, name: str, base_offset: int, end_offset: int, digest: bytes) -> None:
        """Note that a node applies a batch; `digest` covers everything up to `end_offset`."""
        known = self._after.get(base_offset)
        if known is not None and known[0] > base_offset and known != (end_offset, digest):
            raise InvariantViolated(
                f"{name} commits a different batch at {base_offset}: "
                f"{(end_offset, digest)} in place of {known}"
            )
        self._after[base_offset] = (end_offset, digest)
        self._digests[end_offset] = digest
        self.end_offset = max(self.end_offset, end_offset)

    def check_snapshot(self, name: str, snapshot_id: OffsetAndEpoch, digest: bytes) -> None:
        if self._digests.get(snapshot_id.offset) != digest:
            raise InvariantViolated(f"{name} loads a snapshot {snapshot_id} that nobody committed")
