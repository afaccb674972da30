"""Read records of several partitions from their leaders, in portions."""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, cast

from spindle.client.admin.refusals import optional_error
from spindle.client.blocking.client import WireClient
from spindle.client.cluster_metadata import BrokerAddress
from spindle.client.errors import ClientError, error_for
from spindle.client.fetching import AbortedProducer
from spindle.client.isolation import shown_batches
from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicPartition
from spindle.common.ports import Bytes
from spindle.common.uuids import ZERO_UUID, Uuid
from spindle.protocol import versions
from spindle.protocol.messages.fetch import FetchRequest, FetchResponse
from spindle.protocol.records.record import RecordHeaders, decode_records
from spindle.protocol.sentinels import READ_COMMITTED

_WITHOUT_SESSION: Final = -1
_LAST_VERSION_BY_NAME: Final = versions.FETCH_TOPIC_IDS - 1
_PARTITION_MAX_BYTES: Final = 1024 * 1024
_MAX_BYTES: Final = 50 * 1024 * 1024
_MAX_WAIT_MS: Final = 500


class ConsumedRecord(NamedTuple):
    """A record as a consumer gets it.

    With `has_append_time` the timestamp is the broker's, else the producer's.
    """

    partition: TopicPartition
    offset: int
    timestamp_ms: int
    has_append_time: bool
    leader_epoch: int
    key: bytes | None
    value: bytes | None
    headers: RecordHeaders


class FetchOffsetOutOfRange(ClientError):
    """A position is before the log start or after the log end of its partition."""

    def __init__(self, partition: TopicPartition, offset: int) -> None:
        super().__init__(f"offset {offset} is out of range for {partition}")
        self.partition = partition


class Reader:
    """Reads several partitions, and keeps the next position in each.

    Args:
        isolation_level: READ_COMMITTED leaves out aborted transactions and stops before open ones.
    """

    def __init__(
        self,
        client: WireClient,
        positions: Mapping[TopicPartition, int],
        *,
        isolation_level: int,
        max_wait_ms: int = _MAX_WAIT_MS,
    ) -> None:
        self._client = client
        self.positions = dict(positions)
        self._isolation_level = isolation_level
        self._max_wait_ms = max_wait_ms

    def poll(self) -> list[ConsumedRecord]:
        """Return the next records, in order within each partition; none if none arrived in time.

        Raises:
            FetchOffsetOutOfRange: a position is outside its log; the others have not moved.
            ApiError: a leader refused with a permanent error.
            ClientError: a leader could not be asked.
        """
        return self._client.retrying(self._poll)

    def _poll(self) -> list[ConsumedRecord]:
        topics = sorted({partition.topic for partition in self.positions})
        view = self._client.current_view(topics)
        led = view.by_leader(self.positions)
        names = {view.topic(name).topic_id: name for name in topics}
        for leader, partitions in led.items():
            self._ask(leader, partitions, names)
        records: list[ConsumedRecord] = []
        trouble: Exception | None = None
        for leader in led:
            # Take every answer, or the next request would get it.
            try:
                answer = self._client.connection(leader).receive(wait_ms=self._max_wait_ms)
                refused = self._take(cast(FetchResponse, answer), names, records)
                trouble = trouble or refused
            except (ApiError, ClientError) as error:
                trouble = error
        if trouble is not None and not records:
            raise trouble
        return records

    def _ask(
        self, leader: BrokerAddress, partitions: list[TopicPartition], names: Mapping[Uuid, str]
    ) -> None:
        ids = {name: topic_id for topic_id, name in names.items()}
        topics: dict[str, FetchRequest.FetchTopic] = {}
        for partition in partitions:
            topic = topics.setdefault(
                partition.topic,
                FetchRequest.FetchTopic(topic=partition.topic, topic_id=ids[partition.topic]),
            )
            topic.partitions.append(
                FetchRequest.FetchTopic.FetchPartition(
                    partition=partition.partition,
                    fetch_offset=self.positions[partition],
                    partition_max_bytes=_PARTITION_MAX_BYTES,
                )
            )
        request = FetchRequest(
            max_wait_ms=self._max_wait_ms,
            min_bytes=1,
            max_bytes=_MAX_BYTES,
            isolation_level=self._isolation_level,
            session_epoch=_WITHOUT_SESSION,
            topics=list(topics.values()),
        )
        last = _LAST_VERSION_BY_NAME if ZERO_UUID in names else None
        self._client.connection(leader).send(request, FetchResponse, last_version=last)

    def _take(
        self, answer: FetchResponse, names: Mapping[Uuid, str], records: list[ConsumedRecord]
    ) -> ApiError | FetchOffsetOutOfRange | None:
        """Add the records of an answer; return the error of the first refused partition."""
        error = optional_error(answer.error_code)
        if error is not None:
            return error
        trouble: ApiError | FetchOffsetOutOfRange | None = None
        for topic in answer.responses:
            name = topic.topic or names[topic.topic_id]
            for fetched in topic.partitions:
                partition = TopicPartition(name, fetched.partition_index)
                if fetched.error_code == ErrorCode.NONE:
                    aborted = [
                        AbortedProducer(a.producer_id, a.first_offset)
                        for a in fetched.aborted_transactions or ()
                    ]
                    records += self._decoded(partition, fetched.records or b"", aborted)
                elif fetched.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    trouble = FetchOffsetOutOfRange(partition, self.positions[partition])
                else:
                    subject = f"fetch of partition {partition}"
                    trouble = trouble or error_for(fetched.error_code, subject)
        return trouble

    def _decoded(
        self, partition: TopicPartition, data: Bytes, aborted: list[AbortedProducer]
    ) -> Iterator[ConsumedRecord]:
        is_committed_only = self._isolation_level == READ_COMMITTED
        for at, header, is_shown in shown_batches(data, aborted if is_committed_only else ()):
            start, self.positions[partition] = self.positions[partition], header.next_offset
            if not is_shown:
                continue
            for record in decode_records(data, at, header):
                if record.offset >= start:
                    yield ConsumedRecord(
                        partition,
                        record.offset,
                        record.timestamp_ms,
                        header.has_log_append_time,
                        header.leader_epoch,
                        record.key,
                        record.value,
                        record.headers,
                    )
