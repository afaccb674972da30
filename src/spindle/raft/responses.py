"""Answers of the quorum. All of them name the epoch of this node and, if known, the leader."""

from collections.abc import Callable
from typing import Final, TypeVar

from spindle.common.errors import ErrorCode
from spindle.common.ids import METADATA_PARTITION, METADATA_TOPIC, OffsetAndEpoch
from spindle.common.uuids import METADATA_TOPIC_ID
from spindle.protocol.messages.begin_quorum_epoch import BeginQuorumEpochResponse
from spindle.protocol.messages.end_quorum_epoch import EndQuorumEpochResponse
from spindle.protocol.messages.fetch import FetchResponse
from spindle.protocol.messages.fetch_snapshot import FetchSnapshotResponse
from spindle.protocol.messages.vote import VoteResponse
from spindle.raft.core import QuorumCore
from spindle.raft.log_view import BOOTSTRAP_SNAPSHOT_ID
from spindle.raft.ready import Destination
from spindle.raft.requests import metadata_topics

Row = TypeVar("Row")
ResponseT = TypeVar("ResponseT", VoteResponse, BeginQuorumEpochResponse, EndQuorumEpochResponse)

_PARTITION: Final = METADATA_PARTITION.partition
FetchPartitionData = FetchResponse.FetchableTopicResponse.PartitionData
SnapshotPartition = FetchSnapshotResponse.TopicSnapshot.PartitionSnapshot


def leader_destination(core: QuorumCore) -> Destination | None:
    """Return where the leader is reached, if it is known."""
    return core.destination(core.leader_id, core.leader_endpoints) if core.leader_id >= 0 else None


def _node_endpoints(core: QuorumCore, row: Callable[..., Row]) -> list[Row]:
    leader = leader_destination(core)
    return [row(node_id=leader.id, host=leader.host, port=leader.port)] if leader else []


def epoch_response(
    core: QuorumCore, response_class: type[ResponseT], error: ErrorCode, **fields: object
) -> ResponseT:
    """Return the answer to a Vote, BeginQuorumEpoch or EndQuorumEpoch."""
    topics = metadata_topics(
        response_class.TopicData,
        error_code=error,
        leader_id=core.leader_id,
        leader_epoch=core.epoch,
        **fields,
    )
    endpoints = _node_endpoints(core, response_class.NodeEndpoint)
    return response_class(topics=topics, node_endpoints=endpoints)


def fetch_response(
    core: QuorumCore,
    error: ErrorCode = ErrorCode.NONE,
    *,
    diverging: OffsetAndEpoch | None = None,
    snapshot_id: OffsetAndEpoch | None = None,
) -> FetchResponse:
    """Return an answer without records; the driver adds them."""
    partition = FetchPartitionData(
        partition_index=_PARTITION,
        error_code=error,
        high_watermark=core.leader_high_watermark,
        log_start_offset=core.log.start_offset if error is ErrorCode.NONE else -1,
        current_leader=FetchPartitionData.LeaderIdAndEpoch(
            leader_id=core.leader_id, leader_epoch=core.epoch
        ),
        aborted_transactions=None,
        records=b"",
    )
    if diverging is not None:
        partition.diverging_epoch = FetchPartitionData.EpochEndOffset(
            epoch=diverging.epoch, end_offset=diverging.offset
        )
    if snapshot_id is not None:
        partition.snapshot_id = FetchPartitionData.SnapshotId(
            end_offset=snapshot_id.offset, epoch=snapshot_id.epoch
        )
    topic = FetchResponse.FetchableTopicResponse(
        topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition]
    )
    return FetchResponse(
        responses=[topic],
        node_endpoints=_node_endpoints(core, FetchResponse.NodeEndpoint),
    )


def fetch_snapshot_response(
    core: QuorumCore,
    error: ErrorCode = ErrorCode.NONE,
    *,
    snapshot_id: OffsetAndEpoch = BOOTSTRAP_SNAPSHOT_ID,
    position: int = 0,
) -> FetchSnapshotResponse:
    """Return an answer without bytes; the driver adds them and the size."""
    partition = SnapshotPartition(
        index=_PARTITION,
        error_code=error,
        snapshot_id=SnapshotPartition.SnapshotId(
            end_offset=snapshot_id.offset, epoch=snapshot_id.epoch
        ),
        current_leader=SnapshotPartition.LeaderIdAndEpoch(
            leader_id=core.leader_id, leader_epoch=core.epoch
        ),
        position=position,
    )
    return FetchSnapshotResponse(
        topics=[FetchSnapshotResponse.TopicSnapshot(name=METADATA_TOPIC, partitions=[partition])],
        node_endpoints=_node_endpoints(core, FetchSnapshotResponse.NodeEndpoint),
    )
