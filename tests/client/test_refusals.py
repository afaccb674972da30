"""Error codes in the form of Kafka's clients."""

import pytest

from spindle.client.admin.refusals import (
    exception_class,
    exception_text,
    optional_error,
    refusal_text,
)
from spindle.client.errors import error_for
from spindle.common.errors import ApiError, ErrorCode


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (ErrorCode.GROUP_ID_NOT_FOUND, "GroupIdNotFoundException"),
        (ErrorCode.TOPIC_ALREADY_EXISTS, "TopicExistsException"),
        (ErrorCode.INVALID_TOPIC_EXCEPTION, "InvalidTopicException"),
        (ErrorCode.KAFKA_STORAGE_ERROR, "KafkaStorageException"),
        (ErrorCode.NON_EMPTY_GROUP, "GroupNotEmptyException"),
    ],
)
def test_error_codes_have_the_exception_classes_of_java(code: ErrorCode, name: str) -> None:
    assert exception_class(code) == f"org.apache.kafka.common.errors.{name}"


def test_a_refusal_without_a_text_gets_that_of_its_code() -> None:
    assert optional_error(0, "ignored") is None
    told = optional_error(ErrorCode.INVALID_CONFIG, "because")
    assert told is not None
    assert refusal_text(told) == "because"
    silent = optional_error(ErrorCode.GROUP_ID_NOT_FOUND)
    assert silent is not None
    assert exception_text(silent).endswith("Exception: The group id does not exist.")
    cordoned = optional_error(ErrorCode.INVALID_REPLICA_ASSIGNMENT)
    assert cordoned is not None
    assert refusal_text(cordoned) == "Replica assignment is invalid."
    assert refusal_text(ApiError(ErrorCode.FENCED_LEADER_EPOCH)) == "FENCED_LEADER_EPOCH"
    unknown = optional_error(9999)
    assert unknown is not None
    assert unknown.code is ErrorCode.UNKNOWN_SERVER_ERROR


def test_an_error_without_a_text_names_subject_and_reason() -> None:
    known = error_for(ErrorCode.GROUP_ID_NOT_FOUND, "group 'g'")
    assert refusal_text(known) == "group 'g': The group id does not exist."
    other = error_for(ErrorCode.FENCED_LEADER_EPOCH, "partition t-0")
    assert refusal_text(other) == "partition t-0: FENCED_LEADER_EPOCH"
    assert str(other) == "FENCED_LEADER_EPOCH: partition t-0"
