"""Mutants: deliberate mistakes in Spindle, each of which the simulation must find."""

from collections.abc import Iterator
from typing import Any, Final

from spindle.common.errors import ErrorCode
from spindle.controller import alter_partition, partition_change_builder
from spindle.controller.broker_changes import BrokerChangeRecords
from spindle.controller.partition_change_builder import Election, PartitionChangeBuilder
from spindle.coordinator.classic import rebalance
from spindle.coordinator.classic.classic_group import GroupState
from spindle.coordinator.classic.rebalance import ClassicRebalance
from spindle.coordinator.classic.requests import ClassicGroupRequests
from spindle.coordinator.consumer import group_migration, reconciliation
from spindle.coordinator.consumer.consumer_group import ConsumerGroup
from spindle.coordinator.offset_requests import OffsetRequests
from spindle.log import log as partition_log
from spindle.metadata.feature_image import FeaturesImage
from spindle.metadata_log.metadata_log import MetadataLog
from spindle.metadata_log.partition_values import PartitionValues
from spindle.protocol.records.validation import AppendOrigin
from spindle.protocol.sentinels import ACKS_ALL
from spindle.raft import follower, votes
from spindle.raft.core import is_up_to_date
from spindle.raft.progress import Progress
from spindle.raft.voters import VoterHistory, VoterSet
from spindle.replicas import follower_appends, replica_manager
from spindle.replicas.partition import Partition
from spindle.replicas.replica_manager import ReplicaManager
from spindle.replication import follower_log
from spindle.replication.fetch_session_handler import FetchSessionHandler
from spindle.replication.leader_state import LeaderState
from spindle.runtime import background
from spindle.runtime.broker.broker_server import BrokerServer
from spindle.runtime.broker.lifecycle import BrokerState
from spindle.runtime.broker.topic_settings import SettingsOfTopics
from spindle.runtime.controller.driver import ControllerDriver
from spindle.runtime.controller.periodic_tasks import PeriodicTasks
from spindle.runtime.controller.speculative_log import SpeculativeLog
from spindle.runtime.coordinator.replica_log import ReplicaCoordinatorLog
from spindle.runtime.quorum import metadata_quorum
from verification.simulation.disk_mutants import DISK_MUTANTS
from verification.simulation.lane_mutants import LANE_MUTANTS
from verification.simulation.mutant import Function, Mutant, always, nothing
from verification.simulation.share_mutants import SHARE_MUTANTS
from verification.simulation.transaction_mutants import TRANSACTION_MUTANTS

# ---------------------------------------------------------------- the quorum


def _grant_whoever_asks(original: Function) -> Function:
    """Let a voter forget which candidate it has voted for in this epoch."""

    def can_grant(core: Any, candidate: Any, log_end: Any, *, is_pre_vote: bool) -> bool:
        if is_pre_vote or not core.role.may_vote:
            return bool(original(core, candidate, log_end, is_pre_vote=is_pre_vote))
        return core.role.leader_id < 0 and is_up_to_date(log_end, core.log.end)

    return can_grant


def _commit_alone(original: Function) -> Function:
    """Count all records of the leader as committed."""
    return lambda self, flushed_offset: flushed_offset


def _keep_tail(original: Function) -> Function:
    """Let a follower keep one record too many of those that its leader does not have."""
    return lambda own, leader, log_end: min(original(own, leader, log_end) + 1, log_end)


def _remove_nobody(original: Function) -> Function:
    """Keep a voter that was removed."""
    return lambda self, key: self


# ---------------------------------------------------------------- the controller


def _late_level(original: Function) -> Function:
    """Write records with the level of the append before, even if it was truncated since."""
    before = 0

    def encode_records(records: Any, metadata_version: int) -> Any:
        nonlocal before
        level, before = before, metadata_version
        return original(records, level)

    return encode_records


def _stay_without_controller(original: Function) -> Function:
    """Let a failed activation keep the leadership, here in every third epoch."""

    def activate(self: Any, epoch: int) -> None:
        if epoch % 3:
            original(self, epoch)

    return activate


def _set_no_timer(original: Function) -> Function:
    """Run a timer only once, as if its tasks had failed before it was set again."""
    return lambda self: self.run_due()


def _one_turn(original: Function) -> Function:
    """End a repeated task after its first turn."""

    async def repeat(turn: Any, *args: Any) -> None:
        await turn()

    return repeat


def _stop_if_started(original: Function) -> Function:
    """Do not close the logs if the broker is stopped while it loads them."""

    async def stop(self: Any, timeout_s: float, **options: Any) -> None:
        if self.lifecycle.state is not BrokerState.NOT_RUNNING:
            await original(self, timeout_s, **options)

    return stop


async def _answer_at_once(self: Any, last_offset: int, timeout_ms: int) -> None:
    """Answer without waiting for the commit."""


def _lead_if_alive(original: Function) -> Function:
    """Let any replica that is alive lead."""
    return lambda self, replica: self.can_lead(replica)


def _elect_uncleanly_at_once(original: Function) -> Function:
    """Elect uncleanly without a look at the eligible replicas."""

    def choose(self: Any) -> tuple[int, bool]:
        if self.election is Election.UNCLEAN:
            for replica in reversed(self.target_replicas):
                if self.can_lead(replica) and replica not in self.target_isr:
                    return replica, True
        leader, is_unclean = original(self)
        return leader, is_unclean

    return choose


def _take_stale_epochs(original: Function) -> Function:
    """Accept AlterPartition with stale epochs and broker epochs."""

    def validate(image: Any, partition: Any, data: Any, broker_id: int, new_isr: Any) -> ErrorCode:
        return ErrorCode.NONE if broker_id in partition.replicas else ErrorCode.INVALID_REQUEST

    return validate


def _forget_partition(original: Function) -> Function:
    """Leave a partition of each topic out of a snapshot."""

    def of_topic(self: Any, topic: Any) -> Iterator[bytes]:
        yield from list(original(self, topic))[:-1]

    return of_topic


# ---------------------------------------------------------------- the leader of a partition


def _advance_to_log_end(original: Function) -> Function:
    """Move the high watermark to the log end, without any follower."""

    def advance(self: Any, now_ms: int) -> bool:
        has_moved: bool = self.log_end_offset > self.high_watermark
        self.high_watermark = max(self.high_watermark, self.log_end_offset)
        return has_moved

    return advance


def _advance_by_majority(original: Function) -> Function:
    """Move the high watermark when one member of the ISR has the records, instead of all."""

    def advance(self: Any, now_ms: int) -> bool:
        ends = [f.log_end_offset for f in self.followers if f.replica_id in self.isr]
        new = min(self.log_end_offset, max(ends, default=self.log_end_offset))
        has_moved: bool = new > self.high_watermark
        self.high_watermark = max(self.high_watermark, new)
        return has_moved

    return advance


def _expand_early(original: Function) -> Function:
    """Add a replica to the ISR after its first fetch."""

    def propose_expansion(self: Any) -> Any:
        if self.pending is not None:
            return None
        joining = [
            follower.replica_id
            for follower in self.followers
            if follower.replica_id not in self.isr
            and follower.log_end_offset >= 0
            and self._is_eligible(follower)
        ]
        return self._propose((*self.isr, *joining)) if joining else None

    return propose_expansion


def _remember_followers(original: Function) -> Function:
    """Keep the offsets of followers from an earlier leader epoch."""

    def begin_epoch(self: Any, **changes: Any) -> bool:
        before = self._followers
        has_moved: bool = original(self, **changes)
        for replica in self._followers:
            if replica in before:
                self._followers[replica] = before[replica]
        return bool(self.advance(changes["now_ms"])) or has_moved

    return begin_epoch


def _expand_without_a_fetch(original: Function) -> Function:
    """Add a replica to the ISR when its broker is alive."""

    def propose_expansion(self: Any) -> Any:
        if self.pending is not None:
            return None
        joining = [
            follower.replica_id
            for follower in self.followers
            if follower.replica_id not in self.isr
            and self._eligibility.is_alive(follower.replica_id)
        ]
        return self._propose((*self.isr, *joining)) if joining else None

    return propose_expansion


def _acknowledge_own_append(original: Function) -> Function:
    """Treat acks=all as acks=1."""

    def append(self: Any, records: Any, required_acks: int, *args: Any, **options: Any) -> Any:
        acks = 1 if required_acks == ACKS_ALL else required_acks
        return original(self, records, acks, *args, **options)

    return append


# ---------------------------------------------------------------- followers and logs


def _hide_epoch(original: Function) -> Function:
    """Leave the last epoch out of a follower's fetch, so that the leader sees no divergence."""
    return lambda log: original(log)._replace(last_epoch=follower_log.NO_EPOCH)


def _truncate_below_high_watermark(original: Function) -> Function:
    """Let a new follower truncate to its high watermark, which lags behind, as before KIP-101."""

    def begin_to_follow(log: Any, now_ms: int) -> Any:
        log.truncate_to(max(log.log_start_offset, log.high_watermark - 1), now_ms)
        return follower_log.position_of(log)

    return begin_to_follow


def _take_by_name(original: Function) -> Function:
    """Give a log on disk to the topic of its name, without a look at the topic id."""
    return lambda found, topic_id, partition, broker_id: found[0] if found else None


def _forget_producers(original: Function) -> Function:
    """Let a leader forget the producers' batches and next sequences."""

    def find_duplicate(producers: Any, found: Any) -> None:
        for _, header in found:
            producers._producers.pop(header.producer_id, None)

    return find_duplicate


def _no_changes_on_followers(original: Function) -> Function:
    """Keep the producers' state of followers empty."""

    def producer_changes(
        producers: Any, records: Any, placed: Any, origin: Any, *terms: Any, **options: Any
    ) -> Any:
        if origin is AppendOrigin.REPLICATION:
            return [], []
        return original(producers, records, placed, origin, *terms, **options)

    return producer_changes


# ---------------------------------------------------------------- coordinators of groups


def _lose_parked_syncs(original: Function) -> Function:
    """Leave the SyncGroup of a removed member unanswered."""

    def remove_member(self: Any, member_id: str) -> None:
        if member_id in self.group.members:
            self.group.members[member_id].awaiting_sync = None
        original(self, member_id)

    return remove_member


def _deliver_any_assignment(original: Function) -> Function:
    """Deliver an outdated assignment to the members of the next generation."""

    def finish_assignment(self: Any, stored: Any, code: ErrorCode, *args: Any) -> None:
        group = self._groups.get(stored.group_id)
        if group is not None and group.state is GroupState.COMPLETING_REBALANCE:
            group.storing = stored
        original(self, stored, code, *args)

    return finish_assignment


async def _wait_for_nothing(self: Any, partition: Any, hosted: Any, offset: int) -> None:
    """Load only the records that are known to be committed when the coordinator is elected."""


MUTANTS: Final[dict[str, Mutant]] = {
    "vote for shorter logs": Mutant(votes, "is_up_to_date", always(True)),
    "vote twice": Mutant(votes, "can_grant", _grant_whoever_asks),
    "votes not stored": Mutant(MetadataLog, "write_election_state", nothing),
    "metadata not flushed": Mutant(MetadataLog, "flush", nothing),
    "metadata not flushed at a start": Mutant(MetadataLog, "_flush_loaded", nothing),
    "records of an earlier level": Mutant(metadata_quorum, "encode_records", _late_level),
    "leader without a controller": Mutant(ControllerDriver, "_activate", _stay_without_controller),
    "periodic tasks end": Mutant(PeriodicTasks, "_on_timer", _set_no_timer),
    "background tasks end": Mutant(background, "_repeat", _one_turn),
    "metadata committed alone": Mutant(Progress, "committed_offset", _commit_alone),
    "voters not removed": Mutant(VoterSet, "without", _remove_nobody),
    "metadata tail kept": Mutant(follower, "truncation_offset", _keep_tail),
    "snapshot with a partition less": Mutant(PartitionValues, "of_topic", _forget_partition),
    "answer before commit": Mutant(SpeculativeLog, "wait_committed", lambda _: _answer_at_once),
    "election outside the ISR": Mutant(PartitionChangeBuilder, "_is_valid_leader", _lead_if_alive),
    "unclean election allowed": Mutant(
        partition_change_builder, "is_unclean_election_enabled", always(True)
    ),
    "unclean election too early": Mutant(
        PartitionChangeBuilder, "_choose_leader", _elect_uncleanly_at_once
    ),
    "AlterPartition without epochs": Mutant(alter_partition, "_validate", _take_stale_epochs),
    "unclean shutdown ignored": Mutant(BrokerChangeRecords, "forget_previous_incarnation", nothing),
    "clean shutdown lost while loading": Mutant(BrokerServer, "stop", _stop_if_started),
    "high watermark at the log end": Mutant(LeaderState, "advance", _advance_to_log_end),
    "high watermark by one follower": Mutant(LeaderState, "advance", _advance_by_majority),
    "ISR expanded early": Mutant(LeaderState, "propose_expansion", _expand_early),
    "ISR expanded without a fetch": Mutant(
        LeaderState, "propose_expansion", _expand_without_a_fetch
    ),
    "followers remembered from an earlier epoch": Mutant(
        LeaderState, "begin_epoch", _remember_followers
    ),
    "settings of topics not applied": Mutant(ReplicaManager, "refresh_settings", nothing),
    "defaults of brokers not applied": Mutant(SettingsOfTopics, "forget", nothing),
    "feature level ignored": Mutant(
        FeaturesImage, "is_elr_enabled", lambda _: property(lambda self: True)
    ),
    "acks=all as acks=1": Mutant(Partition, "append", _acknowledge_own_append),
    "epochs hidden from leaders": Mutant(follower_log, "position_of", _hide_epoch),
    "dropped answers not asked for again": Mutant(
        FetchSessionHandler, "mark_response_dropped", nothing
    ),
    "truncation ignored": Mutant(follower_log, "_truncate", nothing),
    "truncation below the high watermark": Mutant(
        follower_appends, "begin_to_follow", _truncate_below_high_watermark
    ),
    "re-created topic taken by name": Mutant(replica_manager, "own_log", _take_by_name),
    "batches appended twice": Mutant(partition_log, "find_duplicate", _forget_producers),
    "producers forgotten by followers": Mutant(
        partition_log, "producer_changes", _no_changes_on_followers
    ),
    "duplicates not found": Mutant(partition_log, "find_duplicate", nothing),
    "parked syncs lost": Mutant(ClassicRebalance, "remove_member", _lose_parked_syncs),
    "overtaken assignment delivered": Mutant(
        ClassicGroupRequests, "finish_assignment", _deliver_any_assignment
    ),
    "join phase without time": Mutant(
        rebalance, "MIN_WAIT_FOR_STATIC_MEMBERS_MS", lambda original: 0
    ),
    "groups loaded without the commit": Mutant(
        ReplicaCoordinatorLog, "_wait_committed", lambda _: _wait_for_nothing
    ),
    "partitions given before they are released": Mutant(ConsumerGroup, "is_free", always(True)),
    "owners forgotten by an upgrade": Mutant(group_migration, "read_assignment", always({})),
    "revocations not awaited": Mutant(reconciliation, "_owns_any", always(False)),
    "offsets outlive their topic": Mutant(OffsetRequests, "delete_missing_topics", nothing),
    **DISK_MUTANTS,
    **LANE_MUTANTS,
    **SHARE_MUTANTS,
    **TRANSACTION_MUTANTS,
}

QUORUM_MUTANTS: Final[dict[str, Mutant]] = {
    "metadata not flushed at a start": MUTANTS["metadata not flushed at a start"],
    "voters kept by a truncation": Mutant(VoterHistory, "truncate_to", nothing),
}
"""Mutants that `quorum_cores` finds within a few seeds."""
