"""The judgement of answers: what an attacker may be told before a login, and without a right."""

from typing import Any

import pytest

from spindle.common.errors import ErrorCode
from spindle.protocol.message import Message
from spindle.protocol.messages.api_versions import ApiVersionsResponse
from spindle.protocol.messages.describe_acls import DescribeAclsResponse
from spindle.protocol.messages.fetch import FetchResponse
from spindle.protocol.messages.find_coordinator import FindCoordinatorResponse
from spindle.protocol.messages.heartbeat import HeartbeatResponse
from spindle.protocol.messages.list_groups import ListGroupsResponse
from spindle.protocol.messages.metadata import MetadataResponse
from verification.fuzz.cases import Sent
from verification.fuzz.secured.answers import AnswerJudge
from verification.fuzz.secured.secret_texts import SecretTexts
from verification.fuzz.wire import Finding

DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
Topic = MetadataResponse.MetadataResponseTopic
Fetched = FetchResponse.FetchableTopicResponse
Coordinator = FindCoordinatorResponse.Coordinator


def judge(**secrets: str) -> AnswerJudge:
    texts = SecretTexts()
    for name, secret in secrets.items():
        texts.add(name, secret)
    return AnswerJudge(texts, [b"a-hidden-path"])


def sent(response: Message, version: int) -> Sent:
    return Sent(response.API_KEY, version, 1, True)


def fetched(error_code: int) -> FetchResponse:
    part = Fetched.PartitionData(error_code=error_code)
    return FetchResponse(responses=[Fetched(topic="a", partitions=[part])])


@pytest.mark.parametrize(
    ("response", "version"),
    [
        (MetadataResponse(topics=[Topic(error_code=DENIED, name="a")]), 9),
        (MetadataResponse(brokers=[MetadataResponse.MetadataResponseBroker(node_id=1)]), 9),
        (fetched(DENIED), 12),
        (HeartbeatResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED), 4),
        (ListGroupsResponse(), 5),
        (FindCoordinatorResponse(coordinators=[Coordinator(error_code=30)]), 6),
    ],
    ids=repr,
)
def test_a_refusal_is_right(response: Any, version: int) -> None:
    judge().check_refused(sent(response, version), response)


@pytest.mark.parametrize(
    ("response", "version"),
    [
        (MetadataResponse(topics=[Topic(name="a")]), 9),
        (fetched(0), 12),
        (HeartbeatResponse(), 4),
        (ListGroupsResponse(groups=[ListGroupsResponse.ListedGroup(group_id="a")]), 5),
        (FindCoordinatorResponse(coordinators=[Coordinator(node_id=1)]), 6),
        (FindCoordinatorResponse(node_id=1), 3),
        (DescribeAclsResponse(), 3),
    ],
    ids=repr,
)
def test_an_answer_that_gives_something_is_found(response: Any, version: int) -> None:
    with pytest.raises(Finding, match="as the stranger gave"):
        judge().check_refused(sent(response, version), response)


def test_before_a_login_other_requests_are_refused_for_their_time_only() -> None:
    refused = HeartbeatResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    judge().check_before_login(sent(refused, 4), refused)
    versions = ApiVersionsResponse()
    judge().check_before_login(sent(versions, 4), versions)
    for response, version in ((HeartbeatResponse(error_code=30), 4), (MetadataResponse(), 9)):
        with pytest.raises(Finding, match="answered before a login"):
            judge().check_before_login(sent(response, version), response)


def test_only_messages_of_mechanisms_come_without_headers() -> None:
    for message in (b"", b"r=a,s=AAAA,i=4096", b"v=AAAA", b'{"status":"invalid_token"}'):
        judge().check_bare_message(message)
    with pytest.raises(Finding, match="no message of a mechanism"):
        judge().check_bare_message(b"\0\0\0\1fuzz-0")


@pytest.mark.parametrize("frame", [b"a-hidden-path", b"xhidden-topicx", b"c2VzYW1l", b"sesame"])
def test_hidden_names_and_secrets_are_found_in_any_answer(frame: bytes) -> None:
    with pytest.raises(Finding, match=r"shows|contains the word"):
        judge(**{"the word": "sesame"}).check_frame(frame)
