"""Responses to requests that are refused as a whole: one error, or one for each element."""

import pytest

from spindle.common.errors import ApiError, ErrorCode
from spindle.controller.error_responses import error_answer
from spindle.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from spindle.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from spindle.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from spindle.protocol.messages.produce import ProduceRequest
from spindle.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse

ERROR = ApiError(ErrorCode.NOT_CONTROLLER, "node 2 is the controller")
CODE, TEXT = ErrorCode.NOT_CONTROLLER, "node 2 is the controller"


def test_a_response_without_room_for_a_text_has_the_code() -> None:
    assert error_answer(AlterPartitionRequest(), ERROR) == AlterPartitionResponse(error_code=CODE)


def test_a_response_with_room_for_a_text_has_code_and_text() -> None:
    expected = UpdateFeaturesResponse(error_code=CODE, error_message=TEXT)
    assert error_answer(UpdateFeaturesRequest(), ERROR) == expected


def test_a_response_about_elements_repeats_the_error_with_their_names() -> None:
    topic, result = CreateTopicsRequest.CreatableTopic, CreateTopicsResponse.CreatableTopicResult
    request = CreateTopicsRequest(topics=[topic(name="a"), topic(name="b")])
    assert error_answer(request, ERROR) == CreateTopicsResponse(
        topics=[result(name=name, error_code=CODE, error_message=TEXT) for name in "ab"]
    )


def test_elements_without_names_get_the_error_in_their_order() -> None:
    request = CreateAclsRequest(creations=[CreateAclsRequest.AclCreation() for _ in range(3)])
    result = CreateAclsResponse.AclCreationResult(error_code=CODE, error_message=TEXT)
    assert error_answer(request, ERROR) == CreateAclsResponse(results=[result] * 3)


def test_a_request_whose_response_cannot_carry_the_error_is_a_mistake() -> None:
    with pytest.raises(KeyError, match="ProduceResponse has no error code"):
        error_answer(ProduceRequest(), ERROR)
