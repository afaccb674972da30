"""A partition's leader: its view of the replicas, and the high watermark that follows from it.

The high watermark does not move while the ISR is below the effective `min.insync.replicas`
(KIP-966). It waits for every member of the *maximal* ISR: the committed one and an expansion that
the controller has not answered yet (KIP-497). It also waits for a follower that has caught up and
may join: otherwise that follower would never reach a high watermark that moves on without it.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol

from spindle.common.errors import ErrorCode
from spindle.metadata.partitions import PartitionRegistration
from spindle.protocol.sentinels import NO_BROKER_EPOCH
from spindle.replication.fetch_session import FetchSession
from spindle.replication.followers import FollowerState

_REFUSALS_WITHOUT_EFFECT: Final = (
    ErrorCode.OPERATION_NOT_ATTEMPTED,
    ErrorCode.INELIGIBLE_REPLICA,
)
"""Refusals that leave the partition as the leader knows it: the proposal had no effect."""
_REFUSALS_THAT_METADATA_EXPLAINS: Final = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.NEW_LEADER_ELECTED,
)
"""Refusals because the partition has changed: newer metadata is on its way to the leader."""


class IsrEligibility(Protocol):
    """The committed state of the brokers of a partition's replicas."""

    def is_eligible(self, replica_id: int, broker_epoch: int) -> bool:
        """Return True if the replica may join the ISR.

        Its broker is neither fenced nor shutting down, its directory is online, and `broker_epoch`
        is that of the broker's registration (-1 fits any).
        """
        ...

    def is_alive(self, replica_id: int) -> bool:
        """Return True if the broker is registered and not fenced."""
        ...


class IsrProposal(NamedTuple):
    """An ISR that the leader asks the controller to commit (AlterPartition).

    `broker_epochs[i]` is that of `isr[i]`: -1 where it is not known, and for the leader itself,
    whose epoch is filled in when the request is made.
    """

    isr: tuple[int, ...]
    broker_epochs: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int
    leader_recovery_state: int


class LeaderState:
    """The leader's view from its election until it resigns, over one or more leader epochs.

    Args:
        max_lag_ms: `replica.lag.time.max.ms`.

    Attributes:
        isr: the committed ISR, in the order of the metadata.
        pending: the ISR change that the controller has not answered yet.
        epoch_start_offset: the log end when this leader epoch began.
        effective_min_isr: `min.insync.replicas`, at most the number of replicas.

    Invariants: 1. `high_watermark` never decreases. 2. `high_watermark <= log_end_offset`.
    3. At most one proposal is pending, and it was made for the present `partition_epoch`.
    4. Everything known of a follower comes from its fetches in the present leader epoch.
    """

    __slots__ = (
        "_eligibility",
        "_followers",
        "_maximal_isr",
        "_min_isr",
        "effective_min_isr",
        "epoch_start_offset",
        "high_watermark",
        "isr",
        "leader_epoch",
        "local_id",
        "log_end_offset",
        "max_lag_ms",
        "partition_epoch",
        "pending",
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
        eligibility: IsrEligibility,
        max_lag_ms: int,
        now_ms: int,
    ) -> None:
        self.local_id = local_id
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.replicas = replicas
        self.isr = isr
        self.pending: IsrProposal | None = None
        self.log_end_offset = log_end_offset
        self.high_watermark = high_watermark
        self.epoch_start_offset = log_end_offset
        self.max_lag_ms = max_lag_ms
        self._eligibility = eligibility
        self._min_isr = min_isr
        self._maximal_isr = frozenset(isr)
        self.effective_min_isr = min(min_isr, len(replicas))
        self._followers: dict[int, FollowerState] = {
            replica: FollowerState(replica, now_ms, is_in_sync=replica in isr)
            for replica in replicas
            if replica != local_id
        }

    # -- what is known

    @property
    def followers(self) -> Iterable[FollowerState]:
        return self._followers.values()

    def follower(self, replica_id: int) -> FollowerState | None:
        """Return what is known of a follower; None for a broker without a replica."""
        return self._followers.get(replica_id)

    @property
    def min_isr(self) -> int:
        """`min.insync.replicas` as configured; in effect at most the number of replicas."""
        return self._min_isr

    @min_isr.setter
    def min_isr(self, value: int) -> None:
        self._min_isr = value
        self.effective_min_isr = min(value, len(self.replicas))

    @property
    def is_sole_replica(self) -> bool:
        """Return True if the high watermark waits for no other replica."""
        return len(self.replicas) == 1

    @property
    def is_under_min_isr(self) -> bool:
        """Return True if the committed ISR is too small for acks=all and for any progress."""
        return len(self.isr) < self.effective_min_isr

    @property
    def is_maximal_isr_under_min(self) -> bool:
        """Return True if even the maximal ISR is too small to acknowledge what it all has."""
        return len(self._maximal_isr) < self.effective_min_isr

    @property
    def is_new(self) -> bool:
        """Return True while the previous leader may have shown clients a higher watermark."""
        return self.high_watermark < self.epoch_start_offset

    def low_watermark(self, log_start_offset: int) -> int:
        """Return the smallest log start of all replicas that are alive (KIP-107).

        Args:
            log_start_offset: the leader's own.
        """
        for follower in self._followers.values():
            if follower.log_start_offset < log_start_offset and self._eligibility.is_alive(
                follower.replica_id
            ):
                log_start_offset = follower.log_start_offset
        return log_start_offset

    # -- what the metadata says

    def is_same(self, registration: PartitionRegistration) -> bool:
        """Return True if the registration has this leader epoch, these replicas and this ISR."""
        return (registration.leader_epoch, registration.replicas, registration.isr) == (
            self.leader_epoch,
            self.replicas,
            self.isr,
        )

    def begin_epoch(
        self,
        *,
        leader_epoch: int,
        partition_epoch: int,
        replicas: tuple[int, ...],
        isr: tuple[int, ...],
        log_end_offset: int,
        now_ms: int,
    ) -> bool:
        """Start another leader epoch as leader; return True if the high watermark moved.

        Forget what followers fetched before. Between the two epochs a replica may have been
        removed, deleted and added again, or another broker may have led and made followers
        truncate their logs; one delta can hide all of that. Every follower names its offset again
        when it fetches in the new epoch.
        """
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.log_end_offset = self.epoch_start_offset = log_end_offset
        self.pending = None
        self.replicas = replicas
        self._followers = {
            replica: FollowerState(replica, now_ms, is_in_sync=replica in isr)
            for replica in replicas
            if replica != self.local_id
        }
        self.min_isr = self._min_isr
        self._set_isr(isr)
        return self.advance(now_ms)

    def update(
        self,
        *,
        partition_epoch: int,
        replicas: tuple[int, ...],
        isr: tuple[int, ...],
        now_ms: int,
    ) -> bool:
        """Apply a change within the leader epoch; return True if the high watermark moved.

        Pass over a partition epoch below the known one: the answer to AlterPartition was faster.
        A replica that stays in the list was never removed meanwhile, because a removal begins a
        new leader epoch. So what it fetched in this epoch still counts.
        """
        if partition_epoch < self.partition_epoch:
            return False
        if partition_epoch > self.partition_epoch:
            # The pending proposal was this change, or will be refused for its partition epoch.
            self.pending = None
        self.partition_epoch = partition_epoch
        if replicas != self.replicas:
            self.replicas = replicas
            self._followers = {
                replica: self._followers.get(replica)
                or FollowerState(replica, now_ms, is_in_sync=False)
                for replica in replicas
                if replica != self.local_id
            }
            self.min_isr = self._min_isr
        self._set_isr(isr)
        return self.advance(now_ms)

    def _set_isr(self, isr: tuple[int, ...]) -> None:
        self.isr = isr
        proposed = self.pending.isr if self.pending is not None else ()
        self._maximal_isr = frozenset((*isr, *proposed))

    # -- progress

    def on_append(self, log_end_offset: int, now_ms: int) -> bool:
        """Note that the local log grew; return True if the high watermark moved."""
        for follower in self._followers.values():
            follower.leader_appends(self.log_end_offset)
        self.log_end_offset = log_end_offset
        return self.advance(now_ms)

    def on_follower_fetch(
        self,
        replica_id: int,
        fetch_offset: int,
        log_start_offset: int,
        broker_epoch: int,
        now_ms: int,
        fetches: FetchSession | None = None,
    ) -> bool:
        """Note that a follower has everything before `fetch_offset`.

        Returns:
            True if the high watermark moved.
        """
        follower = self._followers.get(replica_id)
        if follower is None:
            return False
        follower.fetched(
            fetch_offset, log_start_offset, broker_epoch, self.log_end_offset, now_ms, fetches
        )
        return self.advance(now_ms)

    def advance(self, now_ms: int) -> bool:
        """Move the high watermark as far as the replicas allow; return True if it moved."""
        if self.is_under_min_isr:
            return False
        new = self.log_end_offset
        for follower in self._followers.values():
            if follower.log_end_offset < new and (
                follower.replica_id in self._maximal_isr or self._is_joining(follower, now_ms)
            ):
                new = follower.log_end_offset
        if new <= self.high_watermark:
            return False
        self.high_watermark = new
        return True

    def _is_joining(self, follower: FollowerState, now_ms: int) -> bool:
        return follower.is_caught_up(
            self.log_end_offset, now_ms, self.max_lag_ms
        ) and self._is_eligible(follower)

    def _is_eligible(self, follower: FollowerState) -> bool:
        epoch = follower.broker_epoch
        if epoch is None or follower.must_fetch:
            return False
        return self._eligibility.is_eligible(follower.replica_id, epoch)

    def require_new_fetch(self, replica_id: int) -> None:
        """Let a follower join only after its next fetch: its log may have lost records."""
        follower = self._followers.get(replica_id)
        if follower is not None:
            follower.must_fetch = True

    # -- the in-sync replicas

    def propose_expansion(self) -> IsrProposal | None:
        """Propose to add the followers that have all committed records; None if there is none.

        A follower must also have everything from before this leader epoch: those records may have
        been committed by an earlier leader, although this one does not know it yet.
        """
        if self.pending is not None or len(self.isr) == len(self.replicas):
            return None
        needed = max(self.high_watermark, self.epoch_start_offset)
        joining = tuple(
            follower.replica_id
            for follower in self._followers.values()
            if follower.replica_id not in self._maximal_isr
            and follower.log_end_offset >= needed
            and self._is_eligible(follower)
        )
        return self._propose((*self.isr, *joining)) if joining else None

    def propose_shrink(self, now_ms: int) -> IsrProposal | None:
        """Propose to remove the members that have not caught up for `max_lag_ms`, if any."""
        if self.pending is not None or len(self.isr) == 1:
            return None
        staying = tuple(
            replica
            for replica in self.isr
            if replica == self.local_id or self._keeps_up(replica, now_ms)
        )
        return self._propose(staying) if len(staying) < len(self.isr) else None

    def _keeps_up(self, replica: int, now_ms: int) -> bool:
        follower = self._followers.get(replica)
        return follower is not None and follower.is_caught_up(
            self.log_end_offset, now_ms, self.max_lag_ms
        )

    def _propose(self, members: tuple[int, ...]) -> IsrProposal:
        """Make the pending proposal: members in ascending order, as Kafka's leaders send it."""
        isr = tuple(sorted(members))
        epochs = tuple(self._broker_epoch(replica) for replica in isr)
        # LeaderRecoveryState.RECOVERED: an unclean leader has nothing to recover after its
        # election.
        recovered = 0
        self.pending = IsrProposal(isr, epochs, self.leader_epoch, self.partition_epoch, recovered)
        self._set_isr(self.isr)
        return self.pending

    def _broker_epoch(self, replica: int) -> int:
        follower = self._followers.get(replica)
        if follower is None or follower.broker_epoch is None:
            return NO_BROKER_EPOCH
        return follower.broker_epoch

    def on_committed(
        self,
        proposal: IsrProposal,
        *,
        leader_epoch: int,
        partition_epoch: int,
        isr: tuple[int, ...],
        now_ms: int,
    ) -> bool:
        """Take the ISR that the controller committed; return True if the high watermark moved."""
        if proposal is not self.pending or leader_epoch != self.leader_epoch:
            return False
        if partition_epoch < self.partition_epoch:
            return False
        self.pending = None
        self.partition_epoch = partition_epoch
        self._set_isr(isr)
        return self.advance(now_ms)

    def on_refused(self, proposal: IsrProposal, code: ErrorCode, now_ms: int) -> tuple[bool, bool]:
        """Note that the controller refused the proposal.

        A proposal that may have had an effect after all stays pending, and holds the high
        watermark, until newer metadata comes.

        Returns:
            Whether to send the proposal again, and whether the high watermark moved.
        """
        if proposal is not self.pending or code in _REFUSALS_THAT_METADATA_EXPLAINS:
            return False, False
        if code in _REFUSALS_WITHOUT_EFFECT:
            self.pending = None
            self._set_isr(self.isr)
            return False, self.advance(now_ms)
        return True, False


__all__ = ["IsrEligibility", "IsrProposal", "LeaderState"]
