"""The errors that a reader of partitions raises when a leader refuses."""

from collections.abc import Callable
from typing import Any, cast

import pytest

from spindle.client.admin.refusals import failure_text
from spindle.client.blocking.client import WireClient
from spindle.client.blocking.reader import Reader
from spindle.client.cluster_metadata import BrokerAddress, ClusterView, PartitionView, TopicView
from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicPartition
from spindle.common.uuids import ZERO_UUID
from spindle.protocol.messages.fetch import FetchResponse
from spindle.protocol.sentinels import READ_COMMITTED

PARTITION = TopicPartition("t", 0)


class RefusingClient:
    """A client of a broker that refuses each fetch with one error."""

    def __init__(self, code: ErrorCode) -> None:
        part = FetchResponse.FetchableTopicResponse.PartitionData(
            partition_index=0, error_code=code, high_watermark=-1
        )
        topic = FetchResponse.FetchableTopicResponse(topic="t", partitions=[part])
        self._answer = FetchResponse(responses=[topic])

    def retrying(self, attempt: Callable[[], Any]) -> Any:
        return attempt()

    def current_view(self, _topics: object) -> ClusterView:
        topic = TopicView("t", ZERO_UUID, False, {0: PartitionView(0, 1, 0, (1,), (1,), ())})
        return ClusterView(brokers={1: BrokerAddress(1, "h", 9)}, topics={"t": topic})

    def connection(self, _broker: BrokerAddress) -> "RefusingClient":
        return self

    def send(self, *_: object, **__: object) -> None:
        pass

    def receive(self, **_: object) -> FetchResponse:
        return self._answer


def test_a_user_who_may_not_read_learns_why() -> None:
    client = cast(WireClient, RefusingClient(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    reader = Reader(client, {PARTITION: 0}, isolation_level=READ_COMMITTED)
    with pytest.raises(ApiError) as refused:
        reader.poll()
    assert failure_text(refused.value) == "fetch of partition t-0: the user is not authorized"
