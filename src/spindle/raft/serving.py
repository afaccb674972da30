"""Serving the log and snapshots to replicas: a fetch offset acknowledges everything before it."""

from typing import Final

from spindle.common.errors import ErrorCode
from spindle.common.ids import OffsetAndEpoch
from spindle.protocol.messages.fetch import FetchRequest, FetchResponse
from spindle.protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from spindle.raft import requests, responses
from spindle.raft.core import QuorumCore
from spindle.raft.log_view import BOOTSTRAP_SNAPSHOT_ID, Diverging, SnapshotNeeded
from spindle.raft.peers import check_leader_request, check_request
from spindle.raft.ready import ReadLog, ReadSnapshot
from spindle.raft.roles import Leader, ParkedFetch

MAX_PARKED_FETCHES: Final = 10_000
"""Beyond this number a fetch is answered at once, without records if there are none."""


def handle_fetch(core: QuorumCore, token: int, request: FetchRequest, now_ms: int) -> None:
    """Answer a replica's Fetch: with records, an offset to truncate to, or a snapshot id."""
    partition = requests.only_fetch_partition(request)
    error = check_request(core, request.cluster_id, partition)
    if error is not None or partition is None:
        core.reply(token, FetchResponse(error_code=error or ErrorCode.INVALID_REQUEST))
        return
    error = _check_fetch(request, partition) or check_leader_request(
        core, partition.current_leader_epoch
    )
    role = core.role
    if error is not None or not isinstance(role, Leader):
        core.reply(token, responses.fetch_response(core, error or ErrorCode.INVALID_REQUEST))
        return
    finding = core.log.validate(partition.fetch_offset, partition.last_fetched_epoch)
    if isinstance(finding, Diverging):
        core.reply(token, responses.fetch_response(core, diverging=finding.end))
    elif isinstance(finding, SnapshotNeeded):
        core.reply(token, responses.fetch_response(core, snapshot_id=finding.snapshot_id))
    else:
        _serve(core, role, token, request, now_ms)


def _check_fetch(
    request: FetchRequest, partition: FetchRequest.FetchTopic.FetchPartition
) -> ErrorCode | None:
    if (
        request.max_wait_ms < 0
        or partition.fetch_offset < 0
        or partition.last_fetched_epoch < 0
        or partition.current_leader_epoch < 0
        or partition.last_fetched_epoch > partition.current_leader_epoch
    ):
        return ErrorCode.INVALID_REQUEST
    return None


def _serve(core: QuorumCore, role: Leader, token: int, request: FetchRequest, now_ms: int) -> None:
    partition = request.topics[0].partitions[0]
    replica = requests.fetching_replica(request)
    if replica.id >= 0 and replica != core.local.key:
        role.progress.fetched(replica, partition.fetch_offset, core.log.end_offset, now_ms)
        offset = role.progress.committed_offset(core.log.flushed_offset)
        if offset is not None:
            core.raise_high_watermark(offset)
    wanted_bytes = partition.partition_max_bytes
    limit_bytes = core.settings.fetch_max_bytes
    fetch = ParkedFetch(
        token,
        partition.fetch_offset,
        min(wanted_bytes, limit_bytes) if wanted_bytes > 0 else limit_bytes,
        partition.high_watermark,
        now_ms + request.max_wait_ms,
    )
    role.parked_fetches[token] = fetch
    if len(role.parked_fetches) > MAX_PARKED_FETCHES:
        _answer(core, role, fetch)


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
    """Send the fetches that wait for a former leader away."""
    for token in role.parked_fetches:
        core.reply(token, responses.fetch_response(core, ErrorCode.NOT_LEADER_OR_FOLLOWER))
    role.parked_fetches.clear()


def handle_fetch_snapshot(
    core: QuorumCore, token: int, request: FetchSnapshotRequest, now_ms: int
) -> None:
    """Serve a slice of a snapshot. The driver answers POSITION_OUT_OF_RANGE beyond its size."""
    if request.cluster_id is not None and request.cluster_id != core.local.cluster_id:
        error = ErrorCode.INCONSISTENT_CLUSTER_ID
        core.reply(token, FetchSnapshotResponse(error_code=error))
        return
    partition = requests.only_partition(request.topics)
    if partition is None:
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        core.reply(token, responses.fetch_snapshot_response(core, error))
        return
    wanted = OffsetAndEpoch(partition.snapshot_id.end_offset, partition.snapshot_id.epoch)
    position = partition.position
    leader_error = check_leader_request(core, partition.current_leader_epoch)
    if leader_error is None:
        if wanted == BOOTSTRAP_SNAPSHOT_ID or wanted not in core.log.snapshots:
            leader_error = ErrorCode.SNAPSHOT_NOT_FOUND
        elif position < 0:
            leader_error = ErrorCode.POSITION_OUT_OF_RANGE
    role = core.role
    if leader_error is not None or not isinstance(role, Leader):
        response = responses.fetch_snapshot_response(
            core, leader_error or ErrorCode.NOT_LEADER_OR_FOLLOWER
        )
        core.reply(token, response)
        return
    _note_snapshot_fetch(role, partition, request.replica_id, now_ms)
    limit_bytes = core.settings.fetch_snapshot_max_bytes
    max_bytes = min(request.max_bytes, limit_bytes) if request.max_bytes > 0 else limit_bytes
    response = responses.fetch_snapshot_response(core, snapshot_id=wanted, position=position)
    core.reply(token, response, ReadSnapshot(wanted, position, max_bytes))


def _note_snapshot_fetch(
    role: Leader,
    partition: FetchSnapshotRequest.TopicSnapshot.PartitionSnapshot,
    replica_id: int,
    now_ms: int,
) -> None:
    """Count a voter that loads a snapshot as alive, for the majority of the leader."""
    voter = role.progress.voters.get(replica_id)
    if voter is not None and voter.key.directory_id in (
        bytes(16),
        partition.replica_directory_id,
    ):
        replica = role.progress.find(voter.key)
        if replica is not None:
            replica.last_fetch_ms = now_ms
