"""Acknowledgements that no honest client sends: a clear error, and memory that stays bounded."""

import pytest
from share_leader import TOPIC_ID, Leader
from test_share_requests import AckPartition, Broker, fetched

from spindle.common.errors import ErrorCode
from spindle.protocol.messages.share_acknowledge import ShareAcknowledgeRequest
from spindle.serving.handlers.share_fetch import share_acknowledge

INVALID_REQUEST, INVALID_STATE = ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_RECORD_STATE
FAR = 2**62


@pytest.mark.parametrize(
    ("first", "last", "types", "code", "text"),
    [
        (0, FAR, [1], INVALID_REQUEST, "past acquired records"),
        (FAR, FAR + 1, [1], INVALID_REQUEST, "past acquired records"),
        (2, 1, [1], INVALID_REQUEST, "the offsets 2 to 1 are not in ascending order"),
        (-3, 2, [1], INVALID_REQUEST, "the offsets -3 to 2 are not in ascending order"),
        (0, 2, [], INVALID_REQUEST, "0 acknowledge types for 3 offsets"),
        (0, 2, [1, 1], INVALID_REQUEST, "2 acknowledge types for 3 offsets"),
        (0, 1, [1] * 100_000, INVALID_REQUEST, "100000 acknowledge types for 2 offsets"),
        (0, 2, [5], INVALID_REQUEST, "unknown acknowledge type 5"),
        (0, 2, [-128], INVALID_REQUEST, "unknown acknowledge type -128"),
        (0, 2, [4], INVALID_REQUEST, "does not say that it renews locks"),
    ],
)
async def test_a_malformed_acknowledgement_names_what_is_wrong(
    first: int, last: int, types: list[int], code: ErrorCode, text: str
) -> None:
    b = Broker()
    b.leader.hosted.append(3)
    await fetched(b)
    batch = AckPartition.AcknowledgementBatch(
        first_offset=first, last_offset=last, acknowledge_types=types
    )
    part = AckPartition(partition_index=0, acknowledgement_batches=[batch])
    topic = ShareAcknowledgeRequest.AcknowledgeTopic(topic_id=TOPIC_ID, partitions=[part])
    request = ShareAcknowledgeRequest(
        group_id="g", member_id="a", share_session_epoch=1, topics=[topic]
    )
    response = await share_acknowledge(b.services, b.context(79), request)
    answer = response.responses[0].partitions[0]
    assert answer.error_code == code
    assert text in str(answer.error_message)
    # Nothing has changed: the member still holds all three.
    assert (await b.acknowledge(2, 0, 2)).responses[0].partitions[0].error_code == 0
    b.leader.share.close()


async def test_records_of_another_member_and_answered_ones_are_refused() -> None:
    s = Leader()
    s.hosted.append(4)
    await s.acquired("a", max_records=2)
    await s.acquired("b", max_records=2)
    assert await s.acknowledge(0, 3, member="a") is INVALID_STATE
    assert await s.acknowledge(2, 3, member="a") is INVALID_STATE
    assert await s.acknowledge(1, 1, member="a") is ErrorCode.NONE
    assert await s.acknowledge(1, 1, member="a") is INVALID_STATE
    assert await s.acknowledge(0, 3, member="nobody") is INVALID_STATE
    s.share.close()


async def test_hundreds_of_workers_that_take_all_and_answer_nothing_hold_back_no_others() -> None:
    s = Leader(lock_duration_ms=20)
    s.hosted.append(300)
    for number in range(300):
        assert len(await s.acquired(f"stuck-{number}", max_records=1)) == 1
    assert len(await s.acquired("a", max_records=500)) >= 1
    (led,) = s.share
    assert led.core is not None
    assert led.core.run_count <= 300
    s.share.close()
