"""The response to a request that is refused as a whole, in the shape of its API.

Some responses have one error code, others repeat the error for each element of the request.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from spindle.common.errors import ApiError
from spindle.controller.decision import ANONYMOUS, Requester
from spindle.controller.delegation_tokens import refusal
from spindle.protocol.api import response_class
from spindle.protocol.message import Message
from spindle.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
)
from spindle.protocol.messages.alter_configs import AlterConfigsRequest
from spindle.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
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
from spindle.protocol.messages.elect_leaders import ElectLeadersRequest
from spindle.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

_ELEMENTS: Final[dict[type[Message], dict[str, str]]] = {
    AlterClientQuotasRequest: {"entries": "entries", "entity": "entity"},
    AlterConfigsRequest: {"responses": "resources"},
    AlterPartitionReassignmentsRequest: {"responses": "topics", "partitions": "partitions"},
    CreateAclsRequest: {"results": "creations"},
    CreatePartitionsRequest: {"results": "topics"},
    CreateTopicsRequest: {"topics": "topics"},
    DeleteAclsRequest: {"filter_results": "filters"},
    ElectLeadersRequest: {
        "replica_election_results": "topic_partitions",
        "partition_result": "partitions",
    },
    IncrementalAlterConfigsRequest: {"responses": "resources"},
}
"""The arrays of a response that have an element for each one of an array of the request."""

_NAMES: Final = frozenset(
    {
        "entity_name",
        "entity_type",
        "name",
        "partition_index",
        "resource_name",
        "resource_type",
        "topic",
    }
)
"""The fields by which an element of a response names the element of the request."""


def error_answer(request: Message, error: ApiError) -> Message:
    """Return the response that carries the error.

    Raises:
        KeyError: the API's response has no error code, and its shape is not in this module.
    """
    request_class = type(request)
    if request_class in _OTHERS:
        return _OTHERS[request_class](request, error)
    response_type: Any = response_class(request.API_KEY)
    arrays = _ELEMENTS.get(request_class, {})
    if not arrays and "error_code" not in {field.name for field in response_type.FIELDS}:
        raise KeyError(f"{response_type.__name__} has no error code")
    response: Message = _with_error(response_type, request, arrays, error)
    return response


def _with_error(struct: Any, asked: Any, arrays: Mapping[str, str], error: ApiError) -> Any:
    """Create a response, or an element of one, with the error's code and text in their fields.

    Args:
        asked: the request, or the element of it that this one answers; a number names itself.
    """
    values: dict[str, Any] = {"error_code": error.code, "error_message": error.message}
    for field in struct.FIELDS:
        if field.name in arrays:
            elements = getattr(asked, arrays[field.name]) or []
            values[field.name] = [_with_error(field.type, e, arrays, error) for e in elements]
        elif field.name in _NAMES:
            values[field.name] = getattr(asked, field.name)
        elif field.name == "partition_id":
            values[field.name] = asked
    names = {field.name for field in struct.FIELDS}
    return struct(**{name: value for name, value in values.items() if name in names})


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


_OTHERS: Final[dict[type[Message], Callable[[Any, ApiError], Message]]] = {
    AlterUserScramCredentialsRequest: _alter_scram,
    CreateDelegationTokenRequest: _create_delegation_token,
    DeleteTopicsRequest: _delete_topics,
}
"""The responses with a shape of their own."""
