"""Following a leader: fetch, append, truncate, and load a snapshot when too far behind.

An observer without a leader asks any node it knows; the error response names the leader. A voter
whose endpoints or supported versions differ from the recorded ones reports it to the leader
(KIP-853). A controller that is an observer may add itself, after removing the record of its id with
a lost directory (KIP-1186).
"""

from typing import Final

from spindle.common.epoch_history import truncation_offset
from spindle.common.errors import CorruptRecords, ErrorCode
from spindle.common.ids import OffsetAndEpoch
from spindle.common.ports import Bytes
from spindle.protocol.message import Message
from spindle.protocol.messages.fetch_snapshot import FetchSnapshotResponse
from spindle.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from spindle.protocol.records.batch import batches, check_crc
from spindle.raft import kraft_records, requests, transitions
from spindle.raft.connections import InFlight
from spindle.raft.core import QuorumCore
from spindle.raft.ready import InstallSnapshot, SnapshotInstalled, WriteSnapshotChunk
from spindle.raft.responses import FetchPartitionData, SnapshotPartition
from spindle.raft.roles import Follower, SnapshotFetch
from spindle.raft.voters import RECONFIGURABLE_KRAFT_VERSION

_SNAPSHOT_LOST: Final = (
    ErrorCode.SNAPSHOT_NOT_FOUND,
    ErrorCode.POSITION_OUT_OF_RANGE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)


# ---------------------------------------------------------------- sending


def poll_follower(core: QuorumCore, role: Follower, now_ms: int) -> None:
    """Fetch; a voter whose leader falls silent becomes prospective."""
    if core.is_shutting_down:
        return
    if core.is_voter:
        if now_ms < role.fetch_deadline_ms:
            core.wake_at(role.fetch_deadline_ms)
        elif not core.is_installing_snapshot:
            transitions.become_prospective(core, now_ms)
            return
    if poll_membership(core, role, now_ms):
        return
    if not core.log.is_flushed or core.is_installing_snapshot:
        return  # a fetch acknowledges everything before its offset: not before it is on the disk
    leader = core.destination(role.leader_id, role.leader_endpoints)
    if leader is None or core.connections.is_failing(leader.id, now_ms):
        ask_anybody(core, now_ms)
        if leader is not None:
            core.wake_at(core.connections.next_time_ms(leader.id))
    elif core.connections.is_ready(leader.id, now_ms):
        core.send(leader, _next_request(core, role), now_ms)
    else:
        core.wake_at(core.connections.next_time_ms(leader.id))


def poll_leaderless(core: QuorumCore, now_ms: int) -> None:
    """Look for the leader."""
    if not core.is_shutting_down:
        ask_anybody(core, now_ms)


def ask_anybody(core: QuorumCore, now_ms: int) -> None:
    """Send a fetch to a random node that may know the leader, one at a time."""
    peers = core.known_peers()
    if not peers:
        return
    ready = [peer for peer in peers if core.connections.is_ready(peer.id, now_ms)]
    if len(ready) < len(peers):
        core.wake_at(min(core.connections.next_time_ms(p.id) for p in peers if p not in ready))
    if ready and not core.connections.has_any_in_flight(peers):
        peer = ready[core.random.randrange(0, len(ready))]
        core.send(peer, _fetch(core), now_ms)


def _next_request(core: QuorumCore, role: Follower) -> Message:
    if role.snapshot is None:
        return _fetch(core)
    return requests.fetch_snapshot_request(
        core.local.cluster_id,
        role.epoch,
        core.local.key,
        role.snapshot.snapshot_id,
        role.snapshot.position,
        core.settings.fetch_snapshot_max_bytes,
    )


def _fetch(core: QuorumCore) -> Message:
    high_watermark = core.high_watermark
    return requests.fetch_request(
        core.local.cluster_id,
        core.epoch,
        core.local.key,
        core.log.end,
        -1 if high_watermark is None else high_watermark,
        core.settings.fetch_max_bytes,
    )


# ---------------------------------------------------------------- fetched


def handle_fetch_response(
    core: QuorumCore, role: Follower, sent: InFlight, partition: FetchPartitionData, now_ms: int
) -> None:
    """Append the records of the leader's answer, truncate the log, or begin to load a snapshot."""
    asked = sent.message.topics[0].partitions[0]  # type: ignore[attr-defined]
    if asked.fetch_offset != core.log.end_offset or core.is_installing_snapshot:
        return
    if partition.diverging_epoch.epoch >= 0 and partition.diverging_epoch.end_offset >= 0:
        end = OffsetAndEpoch(partition.diverging_epoch.end_offset, partition.diverging_epoch.epoch)
        own_end = core.log.end_offset_for(end.epoch)
        core.truncate_to(truncation_offset(own_end, end, core.log.end_offset))
    elif partition.snapshot_id.epoch >= 0:
        snapshot_id = OffsetAndEpoch(partition.snapshot_id.end_offset, partition.snapshot_id.epoch)
        role.snapshot = SnapshotFetch(snapshot_id)
    else:
        is_good = _append_fetched(core, role, partition.records or b"")
        if partition.high_watermark >= 0:
            core.raise_high_watermark(min(core.log.end_offset, partition.high_watermark))
        if not is_good:
            core.connections.back_off(sent.destination.id, now_ms)
    role.has_fetched = True
    role.fetch_deadline_ms = now_ms + core.settings.fetch_timeout_ms


def handle_refused_fetch(core: QuorumCore, role: Follower, sent: InFlight, now_ms: int) -> None:
    """Request pre-votes soon, because no process listens at the leader's address any more.

    The pre-votes show whether the other voters have lost the leader, too. If only this node cannot
    reach it, this node asks once, and not again before it has fetched.
    """
    if role.has_fetched and sent.destination.id == role.leader_id and sent.epoch == role.epoch:
        role.has_fetched = False  # this node grants pre-votes to others from now on
        deadline_ms = transitions.early_election_deadline_ms(core, now_ms)
        role.fetch_deadline_ms = min(role.fetch_deadline_ms, deadline_ms)


def _append_fetched(core: QuorumCore, role: Follower, records: Bytes) -> bool:
    """Append the complete, valid batches; return False if other bytes were dropped."""
    position = end = 0
    is_good = True
    offset = core.log.end_offset
    starts: list[tuple[int, int]] = []
    try:
        for position, header in batches(records):
            check_crc(records, position, header)
            if header.base_offset != offset or not 0 <= header.leader_epoch <= role.epoch:
                raise CorruptRecords(
                    f"batch at offset {header.base_offset} of epoch {header.leader_epoch} "
                    f"where {offset} was expected"
                )
            starts.append((header.leader_epoch, offset))
            offset = header.next_offset
            end = position + header.size_bytes
    except CorruptRecords:
        is_good = False
    if end:
        sound = bytes(memoryview(records)[:end])
        core.append_fetched(sound, offset, starts)
        core.flush()
        kraft_records.apply_to_history(sound, core.history, core.voters_changed)
    return is_good


# ---------------------------------------------------------------- snapshots


def is_snapshot_lost(response: FetchSnapshotResponse) -> bool:
    """Return True if the leader no longer has the snapshot that is being loaded."""
    partition = requests.only_partition(response.topics)
    return (
        not response.error_code and partition is not None and partition.error_code in _SNAPSHOT_LOST
    )


def handle_fetch_snapshot_response(
    core: QuorumCore, role: Follower, partition: SnapshotPartition, now_ms: int
) -> None:
    """Store a part of the leader's snapshot; the last part installs it."""
    loading = role.snapshot
    snapshot_id = OffsetAndEpoch(partition.snapshot_id.end_offset, partition.snapshot_id.epoch)
    if (
        loading is None
        or loading.snapshot_id != snapshot_id
        or loading.position != partition.position
    ):
        return
    data = partition.unaligned_records or b""
    core.ready.log_operations.append(WriteSnapshotChunk(snapshot_id, loading.position, data))
    loading.position += len(data)
    if loading.position >= partition.size:
        core.is_installing_snapshot = True
        core.ready.log_operations.append(InstallSnapshot(snapshot_id))
    role.fetch_deadline_ms = now_ms + core.settings.fetch_timeout_ms


def reset_to_snapshot(core: QuorumCore, event: SnapshotInstalled) -> None:
    """Restart the log at the end of a snapshot, and use the snapshot's voters."""
    snapshot_id = event.snapshot_id
    core.is_installing_snapshot = False
    core.log.reset_to(snapshot_id)
    core.history.clear()
    core.history.add_kraft_version(snapshot_id.offset - 1, event.kraft_version)
    if event.voters is not None:
        core.voters_changed(snapshot_id.offset - 1, event.voters)
    core.raise_high_watermark(snapshot_id.offset)


def handle_snapshot_installed(core: QuorumCore, role: Follower, now_ms: int) -> None:
    """Fetch from the end of the snapshot on."""
    role.snapshot = None
    role.fetch_deadline_ms = now_ms + core.settings.fetch_timeout_ms


def handle_snapshot_unfit(core: QuorumCore, role: Follower, now_ms: int) -> None:
    """Ask again after a while: the leader may have a newer snapshot, or another node may lead."""
    role.snapshot = None
    core.connections.back_off(role.leader_id, now_ms, core.settings.fetch_timeout_ms // 2)


def poll_membership(core: QuorumCore, role: Follower, now_ms: int) -> bool:
    """Send a due membership request to the leader; return True if sent: no fetch is sent then."""
    message = _due_request(core, role)
    if message is None:
        return False
    if now_ms < role.update_voter_deadline_ms:
        core.wake_at(role.update_voter_deadline_ms)
        return False
    leader = core.destination(role.leader_id, role.leader_endpoints)
    if leader is None or not core.connections.is_ready(leader.id, now_ms):
        return False
    core.send(leader, message, now_ms)
    role.update_voter_deadline_ms = now_ms + core.settings.fetch_timeout_ms
    return True


def _due_request(core: QuorumCore, role: Follower) -> Message | None:
    local = core.local
    recorded = core.voters.get(local.key.id)
    is_reconfigurable = core.history.kraft_version >= RECONFIGURABLE_KRAFT_VERSION
    if core.is_voter:
        is_known = is_reconfigurable and recorded == local.voter
        if is_known or role.has_updated_voter or not local.endpoints:
            return None
        return requests.update_voter_request(local.cluster_id, role.epoch, local.voter)
    if not (core.settings.auto_join and local.can_vote and is_reconfigurable and role.has_fetched):
        return None
    if recorded is not None:
        return RemoveRaftVoterRequest(
            cluster_id=local.cluster_id,
            voter_id=recorded.key.id,
            voter_directory_id=recorded.key.directory_id,
        )
    return requests.add_voter_request(
        local.cluster_id, core.settings.request_timeout_ms, local.voter
    )
