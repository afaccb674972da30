"""The requests that the quorum sends, and the metadata partition of messages that it receives.

These messages nest topics and partitions although the quorum has one partition. This module wraps
and unwraps that nesting.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from spindle.common.ids import METADATA_PARTITION, METADATA_TOPIC, Endpoint, OffsetAndEpoch
from spindle.common.uuids import METADATA_TOPIC_ID, ZERO_UUID
from spindle.protocol.message import Message
from spindle.protocol.messages.add_raft_voter import AddRaftVoterRequest
from spindle.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from spindle.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest
from spindle.protocol.messages.fetch import FetchRequest, FetchResponse
from spindle.protocol.messages.fetch_snapshot import FetchSnapshotRequest
from spindle.protocol.messages.update_raft_voter import UpdateRaftVoterRequest
from spindle.protocol.messages.vote import VoteRequest
from spindle.raft.voters import ReplicaKey, Voter

FETCH_MAX_WAIT_MS: Final = 500
_PARTITION: Final = METADATA_PARTITION.partition
_INDEX_FIELDS: Final = ("partition_index", "partition", "index")

RowT = TypeVar("RowT")
TopicT = TypeVar("TopicT")


def vote_request(
    cluster_id: str,
    epoch: int,
    candidate: ReplicaKey,
    voter: ReplicaKey,
    log_end: OffsetAndEpoch,
    *,
    is_pre_vote: bool,
) -> VoteRequest:
    """Return a candidate's Vote request to a voter; a pre-vote changes no epoch (KIP-996)."""
    topics = metadata_topics(
        VoteRequest.TopicData,
        replica_epoch=epoch,
        replica_id=candidate.id,
        replica_directory_id=candidate.directory_id,
        voter_directory_id=voter.directory_id,
        last_offset_epoch=log_end.epoch,
        last_offset=log_end.offset,
        pre_vote=is_pre_vote,
    )
    return VoteRequest(cluster_id=cluster_id, voter_id=voter.id, topics=topics)


def is_pre_vote(message: Message) -> bool:
    """Return True for a request for pre-votes (KIP-996)."""
    return isinstance(message, VoteRequest) and any(
        partition.pre_vote for topic in message.topics for partition in topic.partitions
    )


def begin_quorum_epoch_request(
    cluster_id: str, epoch: int, leader_id: int, endpoints: Sequence[Endpoint], voter: ReplicaKey
) -> BeginQuorumEpochRequest:
    """Return the request with which a new leader presents itself to a voter."""
    return BeginQuorumEpochRequest(
        cluster_id=cluster_id,
        voter_id=voter.id,
        topics=metadata_topics(
            BeginQuorumEpochRequest.TopicData,
            voter_directory_id=voter.directory_id,
            leader_id=leader_id,
            leader_epoch=epoch,
        ),
        leader_endpoints=_listeners(BeginQuorumEpochRequest.LeaderEndpoint, endpoints),
    )


def end_quorum_epoch_request(
    cluster_id: str,
    epoch: int,
    leader_id: int,
    endpoints: Sequence[Endpoint],
    candidates: Sequence[ReplicaKey],
) -> EndQuorumEpochRequest:
    """Return the request with which a leader that resigns names the preferred candidates."""
    topic_class = EndQuorumEpochRequest.TopicData
    return EndQuorumEpochRequest(
        cluster_id=cluster_id,
        topics=metadata_topics(
            topic_class,
            leader_id=leader_id,
            leader_epoch=epoch,
            preferred_successors=[key.id for key in candidates],
            preferred_candidates=[
                topic_class.PartitionData.ReplicaInfo(
                    candidate_id=key.id, candidate_directory_id=key.directory_id
                )
                for key in candidates
            ],
        ),
        leader_endpoints=_listeners(EndQuorumEpochRequest.LeaderEndpoint, endpoints),
    )


def fetch_request(
    cluster_id: str,
    epoch: int,
    replica: ReplicaKey,
    log_end: OffsetAndEpoch,
    high_watermark: int,
    max_bytes: int,
) -> FetchRequest:
    """Return a Fetch of the metadata log from this node's log end on."""
    partition = FetchRequest.FetchTopic.FetchPartition(
        partition=_PARTITION,
        current_leader_epoch=epoch,
        fetch_offset=log_end.offset,
        last_fetched_epoch=log_end.epoch,
        partition_max_bytes=max_bytes,
        replica_directory_id=replica.directory_id,
        high_watermark=high_watermark,
    )
    topic = FetchRequest.FetchTopic(
        topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition]
    )
    return FetchRequest(
        cluster_id=cluster_id,
        replica_id=replica.id,
        replica_state=FetchRequest.ReplicaState(replica_id=replica.id),
        max_wait_ms=FETCH_MAX_WAIT_MS,
        max_bytes=max_bytes,
        topics=[topic],
    )


def fetch_snapshot_request(
    cluster_id: str,
    epoch: int,
    replica: ReplicaKey,
    snapshot_id: OffsetAndEpoch,
    position: int,
    max_bytes: int,
) -> FetchSnapshotRequest:
    """Return a request for the part of a snapshot that begins at `position` (KIP-630)."""
    partition_snapshot = FetchSnapshotRequest.TopicSnapshot.PartitionSnapshot
    partition = partition_snapshot(
        partition=_PARTITION,
        current_leader_epoch=epoch,
        snapshot_id=partition_snapshot.SnapshotId(
            end_offset=snapshot_id.offset, epoch=snapshot_id.epoch
        ),
        position=position,
        replica_directory_id=replica.directory_id,
    )
    return FetchSnapshotRequest(
        cluster_id=cluster_id,
        replica_id=replica.id,
        max_bytes=max_bytes,
        topics=[FetchSnapshotRequest.TopicSnapshot(name=METADATA_TOPIC, partitions=[partition])],
    )


def update_voter_request(cluster_id: str, epoch: int, voter: Voter) -> UpdateRaftVoterRequest:
    """Return the request with which a voter updates its endpoints and versions (KIP-853)."""
    return UpdateRaftVoterRequest(
        cluster_id=cluster_id,
        current_leader_epoch=epoch,
        voter_id=voter.key.id,
        voter_directory_id=voter.key.directory_id,
        listeners=_listeners(UpdateRaftVoterRequest.Listener, voter.endpoints),
        k_raft_version_feature=UpdateRaftVoterRequest.KRaftVersionFeature(
            min_supported_version=voter.versions.min_version,
            max_supported_version=voter.versions.max_version,
        ),
    )


def add_voter_request(cluster_id: str, timeout_ms: int, voter: Voter) -> AddRaftVoterRequest:
    """Return the request by which a controller adds itself (KIP-1186), answered at the append."""
    return AddRaftVoterRequest(
        cluster_id=cluster_id,
        timeout_ms=timeout_ms,
        voter_id=voter.key.id,
        voter_directory_id=voter.key.directory_id,
        listeners=_listeners(AddRaftVoterRequest.Listener, voter.endpoints),
        ack_when_committed=False,
    )


def metadata_topics(topic_class: Callable[..., TopicT], **fields: Any) -> list[TopicT]:
    """Return the topics of a message about the metadata partition, which has these fields."""
    partition = topic_class.PartitionData(  # type: ignore[attr-defined]
        partition_index=_PARTITION, **fields
    )
    return [topic_class(topic_name=METADATA_TOPIC, partitions=[partition])]


def _listeners(row: Callable[..., RowT], endpoints: Sequence[Endpoint]) -> list[RowT]:
    return [row(name=at.listener, host=at.host, port=at.port) for at in endpoints]


def only_partition(topics: Sequence[Any]) -> Any | None:
    """Return the metadata partition of a request or response; None if it is about anything else."""
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        return None
    topic, partition = topics[0], topics[0].partitions[0]
    name = topic.name if hasattr(topic, "name") else topic.topic_name
    index = next(getattr(partition, field) for field in _INDEX_FIELDS if hasattr(partition, field))
    return partition if name == METADATA_TOPIC and index == _PARTITION else None


def response_partition(response: Any) -> Any | None:
    """Return the metadata partition of a response; a Fetch may name its topic by id."""
    if not isinstance(response, FetchResponse):
        return only_partition(response.topics)
    topics = response.responses
    return topics[0].partitions[0] if len(topics) == 1 == len(topics[0].partitions) else None


def only_fetch_partition(request: FetchRequest) -> FetchRequest.FetchTopic.FetchPartition | None:
    """Return the metadata partition of a fetch, by name or (version 13 and later) by id."""
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return None
    topic, partition = request.topics[0], request.topics[0].partitions[0]
    is_metadata = topic.topic == METADATA_TOPIC or topic.topic_id == METADATA_TOPIC_ID
    return partition if is_metadata and partition.partition == _PARTITION else None


def fetching_replica(request: FetchRequest) -> ReplicaKey:
    """Return the replica that fetches; its id is -1 for a consumer."""
    state_id = request.replica_state.replica_id
    replica_id = state_id if state_id >= 0 else request.replica_id
    partition = only_fetch_partition(request)
    directory_id = partition.replica_directory_id if partition is not None else ZERO_UUID
    return ReplicaKey(replica_id, directory_id)
