"""What a leader knows of its partition's replicas, and the high watermark that follows from it.

KIP-966: below the effective `min.insync.replicas` the high watermark does not move at all.
KIP-497: it is held by the *maximal* ISR, the committed one and additions under way.
"""

from collections.abc import Iterable

UNKNOWN_OFFSET = -1


class LeaderState:
    """The leader's view in one leader epoch.

    Invariants: 1. `high_watermark` never decreases. 2. `high_watermark <= log_end_offset`.
    """

    __slots__ = (
        "epoch_start_offset",
        "follower_end_offsets",
        "high_watermark",
        "isr",
        "leader_epoch",
        "local_id",
        "log_end_offset",
        "min_isr",
        "partition_epoch",
        "replicas",
    )

    def __init__(
        self,
        *,
        local_id: int,
        leader_epoch: int,
        partition_epoch: int,
        replicas: tuple[int, ...],
        isr: tuple[int, ...],
        min_isr: int,
        log_end_offset: int,
        high_watermark: int,
    ) -> None:
        self.local_id = local_id
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.replicas = replicas
        self.isr = isr
        self.min_isr = min_isr
        self.log_end_offset = log_end_offset
        self.high_watermark = high_watermark
        self.epoch_start_offset = log_end_offset
        self.follower_end_offsets: dict[int, int] = {
            replica: UNKNOWN_OFFSET for replica in replicas if replica != local_id
        }

    @property
    def effective_min_isr(self) -> int:
        """`min.insync.replicas`, capped by how many replicas the partition has."""
        return min(self.min_isr, len(self.replicas))

    @property
    def is_alone(self) -> bool:
        """No other replica has a say in the high watermark."""
        return self.has_min_isr and all(replica == self.local_id for replica in self.isr)

    @property
    def has_min_isr(self) -> bool:
        return len(self.isr) >= self.effective_min_isr

    def update(
        self, *, partition_epoch: int, replicas: tuple[int, ...], isr: tuple[int, ...]
    ) -> None:
        """Take over what the controller decided within the same leader epoch."""
        self.partition_epoch = partition_epoch
        self.replicas = replicas
        self.isr = isr
        self.follower_end_offsets = {
            replica: self.follower_end_offsets.get(replica, UNKNOWN_OFFSET)
            for replica in replicas
            if replica != self.local_id
        }

    def on_append(self, log_end_offset: int) -> bool:
        """The local log grew; True if the high watermark moved."""
        self.log_end_offset = log_end_offset
        return self._advance()

    def on_follower_fetch(self, replica_id: int, fetch_offset: int) -> bool:
        """A follower asked for `fetch_offset`, so it has all before; True if the mark moved."""
        if replica_id not in self.follower_end_offsets:
            return False
        self.follower_end_offsets[replica_id] = fetch_offset
        return self._advance()

    def advance(self) -> bool:
        """Move the high watermark after the ISR changed; True if it moved."""
        return self._advance()

    def _advance(self) -> bool:
        if not self.has_min_isr:
            return False
        new = min(self._in_sync_end_offsets(), default=self.log_end_offset)
        if new <= self.high_watermark:
            return False
        self.high_watermark = new
        return True

    def _in_sync_end_offsets(self) -> Iterable[int]:
        yield self.log_end_offset
        for replica in self.isr:
            if replica != self.local_id:
                yield self.follower_end_offsets.get(replica, UNKNOWN_OFFSET)
