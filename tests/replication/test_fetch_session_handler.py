"""Both ends of a fetch session agree on what is wanted, whatever is lost between them."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from spindle.common.ids import TopicIdPartition
from spindle.protocol.messages.fetch import FetchRequest, FetchResponse
from spindle.replication.fetch_session import FetchSessionCache, SessionError
from spindle.replication.fetch_session_handler import (
    FetchSessionHandler,
    NextFetch,
    Position,
)

IDS = [bytes([number]) * 16 for number in (1, 2)]
KEYS = [TopicIdPartition(topic_id, partition) for topic_id in IDS for partition in range(3)]


def request_of(fetch: NextFetch) -> FetchRequest:
    request = FetchRequest(session_id=fetch.session_id, session_epoch=fetch.session_epoch)
    for key, position in fetch.wanted.items():
        topic = FetchRequest.FetchTopic(topic_id=key.topic_id, partitions=[position])
        request.topics.append(topic)
    for key in fetch.forgotten:
        request.forgotten_topics_data.append(
            FetchRequest.ForgottenTopic(topic_id=key.topic_id, partitions=[key.partition])
        )
    return request


def answer_to(session_id: int, keys: list[TopicIdPartition]) -> FetchResponse:
    response = FetchResponse(session_id=session_id)
    for key in keys:
        topic = FetchResponse.FetchableTopicResponse(topic_id=key.topic_id)
        topic.partitions.append(
            FetchResponse.FetchableTopicResponse.PartitionData(partition_index=key.partition)
        )
        response.responses.append(topic)
    return response


@settings(deadline=None, max_examples=100)
@given(st.randoms(use_true_random=False))
def test_the_leader_serves_exactly_what_is_wanted(random: Random) -> None:
    handler = FetchSessionHandler()
    cache = FetchSessionCache(random.choice([0, 1, 5]), lambda: random.randrange(1, 2**31))
    wanted: dict[TopicIdPartition, int] = {}
    for _ in range(random.randrange(1, 30)):
        for _ in range(random.randrange(4)):
            key = random.choice(KEYS)
            if random.randrange(3):
                wanted[key] = random.randrange(100)
                handler.want(key, Position(partition=key.partition, fetch_offset=wanted[key]))
            else:
                wanted.pop(key, None)
                handler.forget(key)
        assert len(handler) == len(wanted)
        fate = random.randrange(10)
        fetch = handler.next_fetch()
        if fate == 0:  # the request is lost
            handler.on_failure()
            continue
        if fate == 1:  # the leader starts anew
            cache = FetchSessionCache(5, lambda: random.randrange(1, 2**31))
        refusal: FetchResponse | None = None
        try:
            context = cache.open(request_of(fetch), 17, 0)
        except SessionError as error:
            refusal = FetchResponse(error_code=error.code)
        if refusal is not None:
            assert not handler.on_response(refusal)
            continue
        served = {
            TopicIdPartition(key.topic_id, key.partition): partition.fetch_offset
            for key, partition in context.session.partitions.items()
        }
        assert served == wanted
        if fate == 2:  # the answer is lost
            handler.on_failure()
            continue
        told = list(served)
        if context.is_incremental:
            told = random.sample(told, random.randrange(len(told) + 1))
        assert handler.on_response(answer_to(context.session_id, told))
