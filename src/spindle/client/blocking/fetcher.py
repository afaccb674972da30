"""Fetch raw record batches of one partition in order, one request ahead of the reader.

While a task decodes one answer, the broker prepares the next, whose offset follows from the batch
headers.
"""

import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from struct import Struct
from typing import Final, cast

from spindle.client.blocking.client import WireClient
from spindle.client.blocking.transport import BlockingConnection
from spindle.client.errors import ClientError, ConnectionLost, RequestTimedOut, is_worth_retrying
from spindle.client.fetching import (
    FetchedBatches,
    FetchLimits,
    fetch_request,
    fetched_batches,
    last_version,
)
from spindle.common.errors import ApiError, CorruptRecords, ErrorCode
from spindle.common.ids import TopicPartition
from spindle.common.ports import Bytes
from spindle.common.uuids import ZERO_UUID, Uuid, uuid_text
from spindle.protocol.messages.fetch import FetchResponse

_HEADER: Final = Struct(">qiib")  # base offset, length, leader epoch, magic
_LAST_OFFSET_DELTA: Final = Struct(">i")
_LAST_OFFSET_DELTA_AT: Final = 23
_LENGTH_ENDS_AT: Final = 12
_HEADER_BYTES: Final = 61
_MAGIC: Final = 2


class TopicReplaced(ClientError):
    """The topic was deleted, and another one of the same name may exist now."""


class NoProgress(ClientError):
    """Expected records do not arrive."""


@dataclass(frozen=True, slots=True)
class FetchedRun:
    """Whole record batches of one partition.

    The first batch may begin before `start_offset` and the last one end after the range; the
    decoder leaves out the other records. `next_offset` is the first offset after the batches.
    `batches.records` is valid until the next run is asked for.
    """

    start_offset: int
    next_offset: int
    batches: FetchedBatches


def whole_batches(records: Bytes) -> tuple[int, int]:
    """Return the size in bytes of the whole batches at the front, and the offset after them.

    Return (0, -1) if there is no whole batch.

    Raises:
        CorruptRecords: a header has an impossible length, or a batch has message format 0 or 1.
    """
    position, next_offset, end = 0, -1, len(records)
    while position + _HEADER_BYTES <= end:
        base_offset, length, _, magic = _HEADER.unpack_from(records, position)
        if magic != _MAGIC:
            raise CorruptRecords(
                f"a batch at offset {base_offset} has message format {magic}: only format 2 is "
                "read here (formats 0 and 1 left Kafka with 4.0)"
            )
        if length < _HEADER_BYTES - _LENGTH_ENDS_AT:
            raise CorruptRecords(f"the batch at offset {base_offset} has a length of {length}")
        if position + _LENGTH_ENDS_AT + length > end:
            break
        (delta,) = _LAST_OFFSET_DELTA.unpack_from(records, position + _LAST_OFFSET_DELTA_AT)
        position += _LENGTH_ENDS_AT + length
        next_offset = base_offset + delta + 1
    return position, next_offset


class PartitionFetcher:
    """Reads one partition from its leader, and follows the leadership.

    Args:
        topic_id: The id at planning time, so that a topic that was created again is not mistaken
            for the old one; zero if the brokers have no topic ids.
        stall_timeout_ms: How long to wait for records that the plan expects.
    """

    def __init__(
        self,
        client: WireClient,
        partition: TopicPartition,
        topic_id: Uuid,
        *,
        isolation_level: int,
        limits: FetchLimits,
        stall_timeout_ms: int,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._partition = partition
        self._topic_id = topic_id
        self._isolation_level = isolation_level
        self._limits = limits
        self._stall_timeout_ms = stall_timeout_ms
        self._sleep = sleep
        self._clock = clock
        self._connection: BlockingConnection | None = None

    def runs(self, start_offset: int, end_offset: int) -> Generator[FetchedRun, None, None]:
        """Yield the batches that hold offsets from `start_offset` up to `end_offset` (exclusive).

        Raises:
            ApiError: a permanent error; OFFSET_OUT_OF_RANGE if the start is no longer in the log.
            TopicReplaced: the topic with the planned id does not exist any more.
            NoProgress: no records arrived for the stall timeout.
            CorruptRecords: a batch header is impossible.
        """
        offset = start_offset
        asked = False
        try:
            while offset < end_offset:
                fetched, size_bytes, next_offset = self._next_answer(offset, asked)
                asked = next_offset < end_offset and self._ask_ahead(next_offset)
                whole = fetched._replace(records=memoryview(fetched.records)[:size_bytes])
                yield FetchedRun(offset, next_offset, whole)
                offset = next_offset
        finally:
            # Close the connection, because an answer may still arrive on it.
            self._drop_connection()

    def _next_answer(self, offset: int, asked: bool) -> tuple[FetchedBatches, int, int]:
        """Return the next answer with at least one whole batch that reaches beyond `offset`."""
        waited_since = self._clock()
        pause_ms = self._client.settings.retry_backoff_ms
        trouble = "the broker sends no records"
        while True:
            try:
                fetched = self._answer(offset, asked)
                size_bytes, next_offset = whole_batches(fetched.records)
                if next_offset > offset:
                    return fetched, size_bytes, next_offset
                pause_ms = self._client.settings.retry_backoff_ms
                if fetched.throttle_ms:
                    # The quota makes the read slow, and is no sign of trouble.
                    self._sleep(fetched.throttle_ms / 1000)
                    waited_since += fetched.throttle_ms / 1000
                    asked = False
                    continue
            except (ApiError, ClientError) as error:
                self._drop_connection()
                if not is_worth_retrying(error):
                    raise
                trouble = str(error)
                self._client.forget_metadata()
                self._check_topic_id(error)
            asked = False
            if self._clock() - waited_since > self._stall_timeout_ms / 1000:
                raise NoProgress(
                    f"partition {self._partition} returned no records at offset {offset} "
                    f"for {self._stall_timeout_ms} ms: {trouble}"
                )
            self._sleep(pause_ms / 1000)
            pause_ms = min(2 * pause_ms, self._client.settings.retry_backoff_max_ms)

    def _answer(self, offset: int, asked: bool) -> FetchedBatches:
        if self._connection is None:
            self._connection = self._client.open_leader(self._partition)
            asked = False
        if not asked:
            self._ask(self._connection, offset)
        response = self._connection.receive(wait_ms=self._limits.max_wait_ms)
        return fetched_batches(self._partition, cast(FetchResponse, response))

    def _ask(self, connection: BlockingConnection, offset: int) -> None:
        request = fetch_request(
            self._partition,
            self._topic_id,
            offset,
            self._limits,
            isolation_level=self._isolation_level,
            rack=self._client.settings.rack,
        )
        connection.send(request, FetchResponse, last_version=last_version(self._topic_id))

    def _ask_ahead(self, offset: int) -> bool:
        """Ask for the next run.

        Return False if that failed; the run is then requested again when it is due.
        """
        if self._connection is None:
            return False
        try:
            self._ask(self._connection, offset)
        except (ConnectionLost, RequestTimedOut):
            self._drop_connection()
            return False
        return True

    def _check_topic_id(self, error: Exception) -> None:
        """Raise TopicReplaced if the topic is gone; the error may also be from stale metadata."""
        unknown = (
            ErrorCode.UNKNOWN_TOPIC_ID,
            ErrorCode.INCONSISTENT_TOPIC_ID,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        )
        if not isinstance(error, ApiError) or error.code not in unknown:
            return
        topic = self._client.metadata([self._partition.topic]).topics.get(self._partition.topic)
        if topic is None:
            raise TopicReplaced(f"topic {self._partition.topic!r} does not exist any more")
        if self._topic_id not in (ZERO_UUID, topic.topic_id):
            raise TopicReplaced(
                f"topic {self._partition.topic!r} was deleted and created again: its id was "
                f"{uuid_text(self._topic_id)} and is now {uuid_text(topic.topic_id)}"
            )

    def _drop_connection(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
