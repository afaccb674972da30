"""ShareFetch, ShareAcknowledge and the APIs of share states, as members and brokers send them."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from share_leader import TOPIC_ID, Leader

from spindle.authorization.authorizer import NoAuthorizer
from spindle.common.errors import ApiError, ErrorCode
from spindle.coordinator.share.state_records import ShareKey, Snapshot
from spindle.metadata.features import SHARE_VERSION
from spindle.protocol.messages.read_share_group_state import ReadShareGroupStateRequest
from spindle.protocol.messages.share_acknowledge import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
)
from spindle.protocol.messages.share_fetch import ShareFetchRequest, ShareFetchResponse
from spindle.serving.context import RequestContext
from spindle.serving.fetch.fetch_memory import FetchMemory
from spindle.serving.handlers.share_fetch import share_acknowledge, share_fetch
from spindle.serving.handlers.share_state import read_share_group_state
from spindle.serving.services import BrokerServices
from spindle.serving.traffic import Traffic

FetchPartition = ShareFetchRequest.FetchTopic.FetchPartition
AckPartition = ShareAcknowledgeRequest.AcknowledgeTopic.AcknowledgePartition


class Broker:
    """A broker that leads partition 0 of topic t for group g, and a connection to it."""

    def __init__(self, level: int = 2) -> None:
        self.leader = Leader()
        self.lost: dict[Any, Callable[[], None]] = {}
        self.services = cast(
            BrokerServices,
            SimpleNamespace(
                share=self.leader.share,
                metadata=SimpleNamespace(
                    image=SimpleNamespace(
                        features=SimpleNamespace(levels={SHARE_VERSION: level}),
                        topics=SimpleNamespace(by_id={TOPIC_ID: SimpleNamespace(name="t")}),
                    )
                ),
                authorizer=NoAuthorizer(),
                quotas=SimpleNamespace(is_active=False),
                traffic=Traffic(),
                fetch_memory=FetchMemory(1_000_000),
                loop=asyncio.get_running_loop(),
                share_coordinator=self.leader.store,
            ),
        )

    def context(self, api_key: int) -> RequestContext:
        context = RequestContext(api_key, 2, 1, "app", "127.0.0.1", "PLAINTEXT")
        context.when_lost = self.lost.__setitem__
        return context

    async def fetch(
        self, epoch: int, *acks: tuple[int, int, int], **more: Any
    ) -> ShareFetchResponse:
        """Send a ShareFetch that acknowledges (first offset, last offset, type)."""
        batch = FetchPartition.AcknowledgementBatch
        part = FetchPartition(
            partition_index=0,
            acknowledgement_batches=[
                batch(first_offset=first, last_offset=last, acknowledge_types=[kind])
                for first, last, kind in acks
            ],
        )
        topics = [ShareFetchRequest.FetchTopic(topic_id=TOPIC_ID, partitions=[part])]
        fields = {"group_id": "g", "member_id": "a", "max_records": 100, "topics": topics, **more}
        request = ShareFetchRequest(share_session_epoch=epoch, **fields)
        return await share_fetch(self.services, self.context(78), request)

    async def acknowledge(self, epoch: int, first: int, last: int) -> ShareAcknowledgeResponse:
        batch = AckPartition.AcknowledgementBatch(
            first_offset=first, last_offset=last, acknowledge_types=[1]
        )
        part = AckPartition(partition_index=0, acknowledgement_batches=[batch])
        topic = ShareAcknowledgeRequest.AcknowledgeTopic(topic_id=TOPIC_ID, partitions=[part])
        request = ShareAcknowledgeRequest(
            group_id="g", member_id="a", share_session_epoch=epoch, topics=[topic]
        )
        return await share_acknowledge(self.services, self.context(79), request)


def acquired(response: ShareFetchResponse) -> list[tuple[int, int, int]]:
    return [
        (a.first_offset, a.last_offset, a.delivery_count)
        for topic in response.responses
        for partition in topic.partitions
        for a in partition.acquired_records
    ]


async def fetched(broker: Broker, epoch: int = 0) -> ShareFetchResponse:
    """Open a session, and return the first response with records."""
    response = await broker.fetch(epoch, max_wait_ms=60_000)
    assert acquired(response)
    return response


async def test_a_session_fetches_acknowledges_and_closes() -> None:
    b = Broker()
    b.leader.hosted.append(3)
    assert acquired(await fetched(b)) == [(0, 2, 1)]
    assert (await b.fetch(1, (0, 0, 1))).responses[0].partitions[0].acknowledge_error_code == 0
    assert (await b.acknowledge(2, 1, 1)).responses[0].partitions[0].error_code == 0
    closed = await b.fetch(-1, (2, 2, 1))
    assert closed.responses[0].partitions[0].acknowledge_error_code == 0
    assert b.leader.store.writes[-1].start_offset == 3
    assert len(b.leader.share.sessions) == 0
    b.leader.share.close()


async def test_the_response_says_how_long_a_record_is_locked() -> None:
    b = Broker()
    b.leader.hosted.append(1)
    assert (await fetched(b)).acquisition_lock_timeout_ms == 30_000
    b.leader.share.close()


async def test_a_lost_connection_releases_the_records_of_its_session() -> None:
    b = Broker()
    b.leader.hosted.append(1)
    await fetched(b)
    for callback in b.lost.values():
        callback()
    assert len(b.leader.share.sessions) == 0
    assert acquired(await fetched(b)) == [(0, 0, 2)]
    b.leader.share.close()


async def test_an_old_connection_does_not_end_the_session_of_the_next_one() -> None:
    b = Broker()
    b.leader.hosted.append(1)
    await fetched(b)
    (late,) = b.lost.values()
    assert acquired(await fetched(b)) == [(0, 0, 2)]
    late()
    assert len(b.leader.share.sessions) == 1
    b.leader.share.close()


@pytest.mark.parametrize(
    ("epoch", "fields", "code"),
    [
        (0, {"group_id": None}, ErrorCode.INVALID_REQUEST),
        (0, {"member_id": ""}, ErrorCode.INVALID_REQUEST),
        (0, {"member_id": "m" * 37}, ErrorCode.INVALID_REQUEST),
        (4, {}, ErrorCode.SHARE_SESSION_NOT_FOUND),
        (-1, {}, ErrorCode.SHARE_SESSION_NOT_FOUND),
        (0, {"is_renew_ack": True}, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_requests_without_a_valid_session_are_refused(
    epoch: int, fields: dict[str, Any], code: ErrorCode
) -> None:
    b = Broker()
    assert (await b.fetch(epoch, **fields)).error_code == code
    assert len(b.leader.share.sessions) == 0


async def test_a_request_that_opens_a_session_must_not_acknowledge() -> None:
    b = Broker()
    assert (await b.fetch(0, (0, 0, 1))).error_code == ErrorCode.INVALID_REQUEST
    assert (await b.acknowledge(0, 0, 0)).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH


async def test_share_groups_need_their_feature() -> None:
    b = Broker(level=0)
    assert (await b.fetch(0)).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert (await b.acknowledge(1, 0, 0)).error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_an_unknown_topic_is_an_error_of_its_partition() -> None:
    b = Broker()
    topic = ShareFetchRequest.FetchTopic(
        topic_id=b"u" * 16, partitions=[FetchPartition(partition_index=0)]
    )
    response = await b.fetch(0, topics=[topic], max_wait_ms=60_000)
    assert response.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    b.leader.share.close()


async def test_a_refused_state_is_an_error_of_its_partition() -> None:
    b = Broker()

    async def read(key: ShareKey, leader_epoch: int) -> Snapshot:
        if key.partition == 1:
            raise ApiError(ErrorCode.FENCED_LEADER_EPOCH)
        return Snapshot(0, 7, leader_epoch, 5, 0, 0, 0, ())

    b.services.share_coordinator = cast(Any, SimpleNamespace(read=read))
    part = ReadShareGroupStateRequest.ReadStateData.PartitionData
    request = ReadShareGroupStateRequest(
        group_id="g",
        topics=[
            ReadShareGroupStateRequest.ReadStateData(
                topic_id=TOPIC_ID,
                partitions=[part(partition=index, leader_epoch=2) for index in (1, 0)],
            )
        ],
    )
    response = await read_share_group_state(b.services, b.context(84), request)
    refused, done = response.results[0].partitions
    assert (refused.partition, refused.error_code) == (1, ErrorCode.FENCED_LEADER_EPOCH)
    assert (done.partition, done.state_epoch, done.start_offset) == (0, 7, 5)
