"""ApiVersions version 5: a client names the broker that it expects (KIP-1242)."""

import pytest

from spindle.common.errors import ErrorCode
from spindle.metadata.image import EMPTY_IMAGE
from spindle.protocol.messages.api_versions import ApiVersionsRequest
from spindle.serving.context import RequestContext
from spindle.serving.handlers.api_versions import AnsweringBroker, answer_of_listener

CONTEXT = RequestContext(18, 5, 1, "client", "127.0.0.1", "PLAINTEXT")


def ask(broker: AnsweringBroker | None, cluster_id: str | None, node_id: int = -1) -> ErrorCode:
    handler = answer_of_listener([3], lambda: EMPTY_IMAGE, lambda: 1, broker)
    request = ApiVersionsRequest(
        client_software_name="c",
        client_software_version="1",
        cluster_id=cluster_id,
        node_id=node_id,
    )
    return ErrorCode(handler(CONTEXT, request).error_code)


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "code"),
    [
        (None, -1, ErrorCode.NONE),
        (None, 2, ErrorCode.INVALID_REQUEST),
        ("ours", 1, ErrorCode.NONE),
        ("ours", 2, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("ours", -1, ErrorCode.INVALID_REQUEST),
        ("other", 1, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("", 1, ErrorCode.REBOOTSTRAP_REQUIRED),
    ],
)
def test_a_client_that_expects_another_broker_has_to_bootstrap_again(
    cluster_id: str | None, node_id: int, code: ErrorCode
) -> None:
    assert ask(AnsweringBroker("ours", 1), cluster_id, node_id) is code


def test_a_controller_answers_a_client_that_expects_another_node() -> None:
    assert ask(None, "other", 7) is ErrorCode.NONE
