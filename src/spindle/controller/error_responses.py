"""The response to a request that is refused as a whole, in the shape of its API.

Some responses have one error code, others repeat the error for each element of the request.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from spindle.common.errors import ApiError
from spindle.controller.delegation_tokens import ANONYMOUS, Requester, refusal
from spindle.protocol.api import response_class
from spindle.protocol.message import Message
from spindle.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
)
from spindle.protocol.messages.alter_configs import AlterConfigsRequest
from spindle.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from spindle.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from spindle.protocol.messages.create_acls import CreateAclsRequest
from spindle.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from spindle.protocol.messages.create_partitions import CreatePartitionsRequest
from spindle.protocol.messages.create_topics import CreateTopicsRequest
from spindle.protocol.messages.delete_acls import DeleteAclsRequest
from spindle.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from spindle.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from spindle.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest


def error_answer(request: Message, error: ApiError) -> Message:
    """Return the response that carries the error.

    Raises:
        KeyError: the API's response has no error code, and its shape is not in this module.
    """
    request_class = type(request)
    if request_class in _OTHERS:
        return _OTHERS[request_class](request, error)
    response_type: Any = response_class(request.API_KEY)
    repeated = _REPEATED.get(request_class)
    if repeated is None:
        response: Message = _with_error(response_type, error)
        return response
    (field,) = [f for f in response_type.FIELDS if f.name == repeated.results]
    results = [
        _with_error(field.type, error, **{name: getattr(element, name) for name in repeated.names})
        for element in getattr(request, repeated.elements)
    ]
    response = response_type(**{repeated.results: results})
    return response


def _with_error(struct: Any, error: ApiError, **fields: object) -> Any:
    """Create a response, or an element of one, with the error's code and (if it has such a field)
    text. The shape follows from the fields of the class.
    """
    values = {"error_code": error.code, "error_message": error.message}
    names = {field.name for field in struct.FIELDS}
    if "error_code" not in names:
        raise KeyError(f"{struct.__name__} has no error code")
    return struct(**{name: value for name, value in values.items() if name in names}, **fields)


class _Repeated(NamedTuple):
    """A response that repeats the error for each element of a request's array."""

    elements: str
    results: str
    names: tuple[str, ...] = ()
    """Fields of a request's element that its result repeats."""


_RESOURCES: Final = _Repeated("resources", "responses", ("resource_type", "resource_name"))
_REPEATED: Final[dict[type[Message], _Repeated]] = {
    AlterConfigsRequest: _RESOURCES,
    CreateAclsRequest: _Repeated("creations", "results"),
    CreatePartitionsRequest: _Repeated("topics", "results", ("name",)),
    CreateTopicsRequest: _Repeated("topics", "topics", ("name",)),
    DeleteAclsRequest: _Repeated("filters", "filter_results"),
    IncrementalAlterConfigsRequest: _RESOURCES,
}


def _delete_topics(request: DeleteTopicsRequest, error: ApiError) -> Message:
    result_type = DeleteTopicsResponse.DeletableTopicResult
    responses = [
        result_type(
            name=state.name,
            topic_id=state.topic_id,
            error_code=error.code,
            error_message=error.message,
        )
        for state in request.topics
    ]
    responses += [
        result_type(name=name, error_code=error.code, error_message=error.message)
        for name in request.topic_names
    ]
    return DeleteTopicsResponse(responses=responses)


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
    result_type = ElectLeadersResponse.ReplicaElectionResult
    return ElectLeadersResponse(
        error_code=error.code,
        replica_election_results=[
            result_type(
                topic=asked.topic,
                partition_result=[
                    result_type.PartitionResult(
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


_OTHERS: Final[dict[type[Message], Callable[[Any, ApiError], Message]]] = {
    AlterClientQuotasRequest: _alter_client_quotas,
    AlterPartitionReassignmentsRequest: _alter_reassignments,
    AlterUserScramCredentialsRequest: _alter_scram,
    CreateDelegationTokenRequest: _create_delegation_token,
    DeleteTopicsRequest: _delete_topics,
    ElectLeadersRequest: _elect_leaders,
}
"""The responses with a shape of their own."""
