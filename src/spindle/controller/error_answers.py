"""The answer to a request that is refused as a whole, in the shape of its API.

Some responses have one error code, others repeat the error for each element that was asked for.
"""

from collections.abc import Callable
from typing import Any, Final

from spindle.common.errors import ApiError
from spindle.controller.delegation_tokens import ANONYMOUS, Requester, refusal
from spindle.protocol.message import Message
from spindle.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from spindle.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from spindle.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
)
from spindle.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from spindle.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
)
from spindle.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from spindle.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from spindle.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from spindle.protocol.messages.begin_quorum_epoch import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
)
from spindle.protocol.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from spindle.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from spindle.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from spindle.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from spindle.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from spindle.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
)
from spindle.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from spindle.protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from spindle.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from spindle.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from spindle.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from spindle.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from spindle.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from spindle.protocol.messages.fetch import FetchRequest, FetchResponse
from spindle.protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from spindle.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from spindle.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from spindle.protocol.messages.remove_raft_voter import (
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)
from spindle.protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from spindle.protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from spindle.protocol.messages.update_features import (
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from spindle.protocol.messages.update_raft_voter import (
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
)
from spindle.protocol.messages.vote import VoteRequest, VoteResponse


def error_answer(request: Message, error: ApiError) -> Message:
    """Return the response that carries the error.

    Raises:
        KeyError: the controller does not serve such requests.
    """
    return _ANSWERS[type(request)](request, error)


def _create_topics(request: CreateTopicsRequest, error: ApiError) -> Message:
    return CreateTopicsResponse(
        topics=[
            CreateTopicsResponse.CreatableTopicResult(
                name=topic.name, error_code=error.code, error_message=error.message
            )
            for topic in request.topics
        ]
    )


def _delete_topics(request: DeleteTopicsRequest, error: ApiError) -> Message:
    result = DeleteTopicsResponse.DeletableTopicResult
    responses = [
        result(
            name=state.name,
            topic_id=state.topic_id,
            error_code=error.code,
            error_message=error.message,
        )
        for state in request.topics
    ]
    responses += [
        result(name=name, error_code=error.code, error_message=error.message)
        for name in request.topic_names
    ]
    return DeleteTopicsResponse(responses=responses)


def _create_partitions(request: CreatePartitionsRequest, error: ApiError) -> Message:
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsResponse.CreatePartitionsTopicResult(
                name=topic.name, error_code=error.code, error_message=error.message
            )
            for topic in request.topics
        ]
    )


def _incremental_alter_configs(request: IncrementalAlterConfigsRequest, error: ApiError) -> Message:
    return IncrementalAlterConfigsResponse(
        responses=[
            IncrementalAlterConfigsResponse.AlterConfigsResourceResponse(
                error_code=error.code,
                error_message=error.message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )


def _alter_configs(request: AlterConfigsRequest, error: ApiError) -> Message:
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResponse.AlterConfigsResourceResponse(
                error_code=error.code,
                error_message=error.message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )


def _alter_client_quotas(request: AlterClientQuotasRequest, error: ApiError) -> Message:
    entry = AlterClientQuotasResponse.EntryData
    return AlterClientQuotasResponse(
        entries=[
            entry(
                error_code=error.code,
                error_message=error.message,
                entity=[
                    entry.EntityData(entity_type=part.entity_type, entity_name=part.entity_name)
                    for part in asked.entity
                ],
            )
            for asked in request.entries
        ]
    )


def _alter_scram(request: AlterUserScramCredentialsRequest, error: ApiError) -> Message:
    users = dict.fromkeys(
        [deletion.name for deletion in request.deletions]
        + [upsertion.name for upsertion in request.upsertions]
    )
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult(
                user=user, error_code=error.code, error_message=error.message
            )
            for user in users
        ]
    )


def _create_acls(request: CreateAclsRequest, error: ApiError) -> Message:
    return CreateAclsResponse(
        results=[
            CreateAclsResponse.AclCreationResult(error_code=error.code, error_message=error.message)
            for _ in request.creations
        ]
    )


def _delete_acls(request: DeleteAclsRequest, error: ApiError) -> Message:
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsResponse.DeleteAclsFilterResult(
                error_code=error.code, error_message=error.message
            )
            for _ in request.filters
        ]
    )


def _create_delegation_token(request: CreateDelegationTokenRequest, error: ApiError) -> Message:
    return refusal(request, Requester(ANONYMOUS), error.code)


def _alter_reassignments(request: AlterPartitionReassignmentsRequest, error: ApiError) -> Message:
    topic_response = AlterPartitionReassignmentsResponse.ReassignableTopicResponse
    return AlterPartitionReassignmentsResponse(
        error_code=error.code,
        error_message=error.message,
        responses=[
            topic_response(
                name=topic.name,
                partitions=[
                    topic_response.ReassignablePartitionResponse(
                        partition_index=partition.partition_index,
                        error_code=error.code,
                        error_message=error.message,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _elect_leaders(request: ElectLeadersRequest, error: ApiError) -> Message:
    result = ElectLeadersResponse.ReplicaElectionResult
    return ElectLeadersResponse(
        error_code=error.code,
        replica_election_results=[
            result(
                topic=asked.topic,
                partition_result=[
                    result.PartitionResult(
                        partition_id=partition_id,
                        error_code=error.code,
                        error_message=error.message,
                    )
                    for partition_id in asked.partitions
                ],
            )
            for asked in request.topic_partitions or []
        ],
    )


def _code_only(response: Callable[..., Message]) -> Callable[[Any, ApiError], Message]:
    return lambda request, error: response(error_code=error.code)


def _code_and_text(response: Callable[..., Message]) -> Callable[[Any, ApiError], Message]:
    return lambda request, error: response(error_code=error.code, error_message=error.message)


_ANSWERS: Final[dict[type[Message], Callable[[Any, ApiError], Message]]] = {
    AllocateProducerIdsRequest: _code_only(AllocateProducerIdsResponse),
    AlterClientQuotasRequest: _alter_client_quotas,
    AlterConfigsRequest: _alter_configs,
    AlterPartitionRequest: _code_only(AlterPartitionResponse),
    AlterPartitionReassignmentsRequest: _alter_reassignments,
    AlterUserScramCredentialsRequest: _alter_scram,
    AssignReplicasToDirsRequest: _code_only(AssignReplicasToDirsResponse),
    BrokerHeartbeatRequest: _code_only(BrokerHeartbeatResponse),
    BrokerRegistrationRequest: _code_only(BrokerRegistrationResponse),
    ControllerRegistrationRequest: _code_and_text(ControllerRegistrationResponse),
    CreateAclsRequest: _create_acls,
    CreateDelegationTokenRequest: _create_delegation_token,
    CreatePartitionsRequest: _create_partitions,
    CreateTopicsRequest: _create_topics,
    DeleteAclsRequest: _delete_acls,
    DeleteTopicsRequest: _delete_topics,
    ElectLeadersRequest: _elect_leaders,
    ExpireDelegationTokenRequest: _code_only(ExpireDelegationTokenResponse),
    IncrementalAlterConfigsRequest: _incremental_alter_configs,
    ListPartitionReassignmentsRequest: _code_and_text(ListPartitionReassignmentsResponse),
    RenewDelegationTokenRequest: _code_only(RenewDelegationTokenResponse),
    AddRaftVoterRequest: _code_and_text(AddRaftVoterResponse),
    RemoveRaftVoterRequest: _code_and_text(RemoveRaftVoterResponse),
    UpdateRaftVoterRequest: _code_only(UpdateRaftVoterResponse),
    DescribeQuorumRequest: _code_and_text(DescribeQuorumResponse),
    FetchRequest: _code_only(FetchResponse),
    FetchSnapshotRequest: _code_only(FetchSnapshotResponse),
    VoteRequest: _code_only(VoteResponse),
    BeginQuorumEpochRequest: _code_only(BeginQuorumEpochResponse),
    EndQuorumEpochRequest: _code_only(EndQuorumEpochResponse),
    UnregisterBrokerRequest: _code_and_text(UnregisterBrokerResponse),
    UpdateFeaturesRequest: _code_and_text(UpdateFeaturesResponse),
}
