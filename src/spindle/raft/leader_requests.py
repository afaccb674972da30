"""Serve the log and snapshots to replicas; a fetch offset acknowledges everything before it."""

from typing import Final

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import OffsetAndEpoch
from spindle.protocol.messages.fetch import FetchRequest
from spindle.protocol.messages.fetch_snapshot import FetchSnapshotRequest
from spindle.raft import requests, responses
from spindle.raft.core import QuorumCore
from spindle.raft.log_view import BOOTSTRAP_SNAPSHOT_ID, Diverging, SnapshotNeeded
from spindle.raft.peers import check_cluster, check_leads
from spindle.raft.ready import ReadLog, ReadSnapshot
from spindle.raft.roles import Leader, ParkedFetch
from spindle.raft.voters import ReplicaKey

MAX_PARKED_FETCHES: Final = 10_000
"""Beyond this number a fetch is answered at once, without records if there are none."""


def handle_fetch(core: QuorumCore, token: int, request: FetchRequest, now_ms: int) -> None:
    """Answer a replica's Fetch: with records, an offset to truncate to, or a snapshot id."""
    check_cluster(core, request.cluster_id)
    partition = requests.only_fetch_partition(request)
    if partition is None:
        raise ApiError(ErrorCode.INVALID_REQUEST)
    try:
        _check_fetch(request, partition)
        leader = check_leads(core, partition.current_leader_epoch)
    except ApiError as refusal:
        core.reply(token, responses.fetch_response(core, refusal.code))
        return
    finding = core.log.validate(partition.fetch_offset, partition.last_fetched_epoch)
    if isinstance(finding, Diverging):
        core.reply(token, responses.fetch_response(core, diverging=finding.end))
    elif isinstance(finding, SnapshotNeeded):
        core.reply(token, responses.fetch_response(core, snapshot_id=finding.snapshot_id))
    else:
        _serve(core, leader, token, request, now_ms)


def _check_fetch(request: FetchRequest, partition: FetchRequest.FetchTopic.FetchPartition) -> None:
    if (
        request.max_wait_ms < 0
        or partition.fetch_offset < 0
        or partition.last_fetched_epoch < 0
        or partition.current_leader_epoch < 0
        or partition.last_fetched_epoch > partition.current_leader_epoch
    ):
        raise ApiError(ErrorCode.INVALID_REQUEST)


def _serve(
    core: QuorumCore, leader: Leader, token: int, request: FetchRequest, now_ms: int
) -> None:
    partition = request.topics[0].partitions[0]
    replica = requests.fetching_replica(request)
    if replica.id >= 0 and replica != core.local.key:
        leader.progress.fetched(replica, partition.fetch_offset, core.log.end_offset, now_ms)
        update_high_watermark(core, leader)
    wanted_bytes = partition.partition_max_bytes
    limit_bytes = core.settings.fetch_max_bytes
    fetch = ParkedFetch(
        token,
        partition.fetch_offset,
        min(wanted_bytes, limit_bytes) if wanted_bytes > 0 else limit_bytes,
        partition.high_watermark,
        now_ms + request.max_wait_ms,
    )
    leader.parked_fetches[token] = fetch
    if len(leader.parked_fetches) > MAX_PARKED_FETCHES:
        _answer(core, leader, fetch)


def serve_parked_fetches(core: QuorumCore, role: Leader, now_ms: int) -> None:
    """Answer the fetches for which there are records or a new high watermark, or that time out."""
    high_watermark = core.leader_high_watermark
    for fetch in list(role.parked_fetches.values()):
        if (
            core.log.end_offset > fetch.offset
            or fetch.high_watermark < high_watermark
            or now_ms >= fetch.deadline_ms
        ):
            _answer(core, role, fetch)
        else:
            core.wake_at(fetch.deadline_ms)


def _answer(core: QuorumCore, role: Leader, fetch: ParkedFetch) -> None:
    del role.parked_fetches[fetch.token]
    read = ReadLog(fetch.offset, fetch.max_bytes) if core.log.end_offset > fetch.offset else None
    core.reply(fetch.token, responses.fetch_response(core), read)


def refuse_parked_fetches(core: QuorumCore, role: Leader) -> None:
    """Refuse the fetches parked while this node was leader."""
    for token in role.parked_fetches:
        core.reply(token, responses.fetch_response(core, ErrorCode.NOT_LEADER_OR_FOLLOWER))
    role.parked_fetches.clear()


def update_high_watermark(core: QuorumCore, leader: Leader) -> None:
    """Commit the records that a majority of the voters has."""
    offset = leader.progress.committed_offset(core.log.flushed_offset)
    if offset is not None:
        core.raise_high_watermark(offset)


def handle_fetch_snapshot(
    core: QuorumCore, token: int, request: FetchSnapshotRequest, now_ms: int
) -> None:
    """Serve a slice of a snapshot. The driver answers POSITION_OUT_OF_RANGE beyond its size."""
    check_cluster(core, request.cluster_id)
    partition = requests.only_partition(request.topics)
    try:
        if partition is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        leader = check_leads(core, partition.current_leader_epoch)
        snapshot_id = OffsetAndEpoch(partition.snapshot_id.end_offset, partition.snapshot_id.epoch)
        position = partition.position
        if snapshot_id == BOOTSTRAP_SNAPSHOT_ID or snapshot_id not in core.log.snapshots:
            raise ApiError(ErrorCode.SNAPSHOT_NOT_FOUND)
        if position < 0:
            raise ApiError(ErrorCode.POSITION_OUT_OF_RANGE)
    except ApiError as refusal:
        core.reply(token, responses.fetch_snapshot_response(core, refusal.code))
        return
    _note_snapshot_fetch(
        leader, ReplicaKey(request.replica_id, partition.replica_directory_id), now_ms
    )
    limit_bytes = core.settings.fetch_snapshot_max_bytes
    max_bytes = min(request.max_bytes, limit_bytes) if request.max_bytes > 0 else limit_bytes
    response = responses.fetch_snapshot_response(core, snapshot_id=snapshot_id, position=position)
    core.reply(token, response, ReadSnapshot(snapshot_id, position, max_bytes))


def _note_snapshot_fetch(leader: Leader, replica_key: ReplicaKey, now_ms: int) -> None:
    """Count a voter that loads a snapshot as alive, for the majority of the leader."""
    voter = leader.progress.voters.get(replica_key.id)
    if voter is not None and voter.key.matches(replica_key):
        replica = leader.progress.find(voter.key)
        if replica is not None:
            replica.last_fetch_ms = now_ms
