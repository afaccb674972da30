"""Fetch requests without a session (KIP-227: session epoch -1; KIP-516: topic ids).

A request is for one partition, so that its answer is one contiguous run of record batches for the
decoder. The batches stay raw bytes here.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from spindle.client.errors import raise_for
from spindle.common.errors import ProtocolViolation
from spindle.common.ids import TopicPartition
from spindle.common.ports import Bytes
from spindle.common.uuids import ZERO_UUID, Uuid
from spindle.protocol import versions
from spindle.protocol.messages.fetch import FetchRequest, FetchResponse

_WITHOUT_SESSION: Final = -1
_UNKNOWN: Final = -1
_MAX_THROTTLE_MS: Final = 30_000
"""The longest pause; a broker that is asked too early waits with its answer."""
_LAST_VERSION_BY_NAME: Final = versions.FETCH_TOPIC_IDS - 1


class AbortedProducer(NamedTuple):
    """A producer's records from `first_offset` on belong to a transaction that was aborted.

    `last_offset` is that of its abort marker, None if it is not known, as in answers to Fetch.
    """

    producer_id: int
    first_offset: int
    last_offset: int | None = None


class FetchedBatches(NamedTuple):
    """The answer of one Fetch for one partition.

    `records` are whole record batches, maybe with a part of another batch behind them; the first
    batch may begin before the requested offset. `aborted` is empty under read_uncommitted.
    `throttle_ms` is the time that a client beyond its quota must wait; it gets no records then.
    """

    records: Bytes
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: Sequence[AbortedProducer]
    throttle_ms: int = 0


class FetchLimits(NamedTuple):
    """The maximum bytes of an answer, and the maximum time to wait for the minimum bytes."""

    max_bytes: int
    min_bytes: int = 1
    max_wait_ms: int = 500


def fetch_request(
    partition: TopicPartition,
    topic_id: Uuid,
    offset: int,
    limits: FetchLimits,
    *,
    isolation_level: int,
    rack: str = "",
) -> FetchRequest:
    """Return a request for record batches of one partition from an offset on.

    Args:
        topic_id: Zero if unknown; the request must then be sent in a version that names topics
            (see `last_version`).
    """
    wanted = FetchRequest.FetchTopic.FetchPartition(
        partition=partition.partition,
        fetch_offset=offset,
        partition_max_bytes=limits.max_bytes,
    )
    topic = FetchRequest.FetchTopic(topic_id=topic_id, topic=partition.topic, partitions=[wanted])
    return FetchRequest(
        max_wait_ms=limits.max_wait_ms,
        min_bytes=limits.min_bytes,
        max_bytes=limits.max_bytes,
        isolation_level=isolation_level,
        session_epoch=_WITHOUT_SESSION,
        topics=[topic],
        rack_id=rack,
    )


def last_version(topic_id: Uuid) -> int | None:
    """Return the newest usable version of Fetch; newer ones name the topic by its id only."""
    return _LAST_VERSION_BY_NAME if topic_id == ZERO_UUID else None


def fetched_batches(partition: TopicPartition, response: FetchResponse) -> FetchedBatches:
    """Return the batches in the answer to a request for one partition.

    Raises:
        ApiError: the broker refused.
        ProtocolViolation: the answer is about another partition.
    """
    subject = f"fetch of partition {partition}"
    raise_for(response.error_code, subject)
    if not response.responses and response.throttle_time_ms > 0:
        # KIP-219: the answer to a client beyond its quota names no partition.
        throttle_ms = min(response.throttle_time_ms, _MAX_THROTTLE_MS)
        return FetchedBatches(b"", _UNKNOWN, _UNKNOWN, _UNKNOWN, (), throttle_ms)
    if len(response.responses) != 1 or len(response.responses[0].partitions) != 1:
        raise ProtocolViolation(f"{subject}: the answer is not about one partition")
    data = response.responses[0].partitions[0]
    if data.partition_index != partition.partition:
        raise ProtocolViolation(f"{subject}: the answer is about {data.partition_index}")
    raise_for(data.error_code, subject)
    return FetchedBatches(
        records=data.records if data.records is not None else b"",
        high_watermark=data.high_watermark,
        last_stable_offset=data.last_stable_offset,
        log_start_offset=data.log_start_offset,
        aborted=[
            AbortedProducer(a.producer_id, a.first_offset) for a in data.aborted_transactions or ()
        ],
    )
