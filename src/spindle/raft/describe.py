"""DescribeQuorum: the leader's view of all replicas (KIP-595, KIP-836)."""

from spindle.common.errors import ErrorCode
from spindle.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
)
from spindle.raft import requests
from spindle.raft.core import QuorumCore
from spindle.raft.progress import ReplicaProgress

_Topic = DescribeQuorumResponse.TopicData
_Partition = DescribeQuorumResponse.TopicData.PartitionData
_Node = DescribeQuorumResponse.Node


def describe_quorum(
    core: QuorumCore, request: DescribeQuorumRequest, now_ms: int
) -> DescribeQuorumResponse:
    """Answer DescribeQuorum; only the leader knows voters and observers (KIP-836)."""
    if requests.only_partition(request.topics) is None:
        return _refusal(request)
    leader = core.leader
    if leader is None:
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        topics = requests.metadata_topics(_Topic, error_code=error, error_message=None)
        return DescribeQuorumResponse(topics=topics)
    progress = leader.progress
    topics = requests.metadata_topics(
        _Topic,
        leader_id=core.leader_id,
        leader_epoch=core.epoch,
        high_watermark=core.leader_high_watermark,
        current_voters=[_replica_state(core, at, now_ms) for at in progress.voter_replicas],
        observers=[_replica_state(core, at, now_ms) for at in progress.observers],
    )
    return DescribeQuorumResponse(topics=topics, nodes=_nodes(core))


def _replica_state(
    core: QuorumCore, replica: ReplicaProgress, now_ms: int
) -> DescribeQuorumResponse.TopicData.PartitionData.ReplicaState:
    is_local = replica.key.id == core.local.key.id and core.is_voter
    return _Partition.ReplicaState(
        replica_id=replica.key.id,
        replica_directory_id=replica.key.directory_id,
        log_end_offset=core.log.end_offset if is_local else replica.end_offset,
        last_fetch_timestamp=now_ms if is_local else replica.last_fetch_ms,
        last_caught_up_timestamp=now_ms if is_local else replica.last_caught_up_ms,
    )


def _nodes(core: QuorumCore) -> list[DescribeQuorumResponse.Node]:
    return [
        _Node(
            node_id=voter.key.id,
            listeners=[
                _Node.Listener(name=at.listener, host=at.host, port=at.port)
                for at in voter.endpoints
            ],
        )
        for voter in core.voters
    ]


def _refusal(request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    return DescribeQuorumResponse(
        topics=[
            _Topic(
                topic_name=topic.topic_name,
                partitions=[
                    _Partition(
                        partition_index=partition.partition_index,
                        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                        error_message="This server does not host this topic-partition.",
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )
