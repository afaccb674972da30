"""Send encoded records as idempotent batches, with several requests in flight to each leader.

The order within a partition holds. After a failure the unanswered batches are sent again one by
one; the brokers drop those that they have (KIP-98).
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from spindle.client.blocking.client import WireClient
from spindle.client.blocking.settings import HostPort
from spindle.client.blocking.transport import BlockingConnection
from spindle.client.errors import ClientError, is_worth_retrying, raise_for
from spindle.client.producing import produce_batches_request
from spindle.client.transactions import LAST_PRODUCE_VERSION, ProducerIdentity
from spindle.common.errors import ApiError, ErrorCode, ProtocolViolation
from spindle.common.ids import TopicPartition
from spindle.common.ports import Bytes
from spindle.protocol.messages.produce import ProduceRequest, ProduceResponse
from spindle.protocol.records.batch import (
    MAGIC,
    NO_SEQUENCE,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    add_to_sequence,
)
from spindle.protocol.records.builder import seal_batch
from spindle.protocol.records.compression import compress
from spindle.protocol.sentinels import ACKS_ALL

_MAX_IN_FLIGHT: Final = 5
"""Brokers recognize the last five batches of a producer in a partition."""
_REQUEST_BYTES: Final = 1024 * 1024
_STORED: Final = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)


class GatheredRecords(NamedTuple):
    """Encoded records of one partition, all with the same time; not compressed."""

    partition: TopicPartition
    payload: Bytes
    record_count: int
    timestamp_ms: int


class _Batch(NamedTuple):
    number: int
    partition: TopicPartition
    data: bytes


class BatchSender:
    """Sends the records of one producer.

    Args:
        identity: The identity from InitProducerId, or None for acks=1, without sequence numbers.
        transactional_id: None outside of transactions.
        add_partitions: Called with partitions before their first batches are sent.
        codec: The compression codec, by the number of the format.
        max_in_flight: The most unanswered requests to one broker, 1 to 5.
    """

    def __init__(
        self,
        client: WireClient,
        identity: ProducerIdentity | None,
        *,
        transactional_id: str | None = None,
        add_partitions: Callable[[Iterable[TopicPartition]], None] | None = None,
        codec: int = 0,
        acks: int = ACKS_ALL,
        max_in_flight: int = _MAX_IN_FLIGHT,
    ) -> None:
        self._client = client
        self._identity = identity
        self._transactional_id = transactional_id
        self._add_partitions = add_partitions
        self._codec = codec
        self._acks = acks
        self._max_in_flight = max_in_flight
        self._sequences: dict[TopicPartition, int] = {}
        self._numbers = 0
        self._waiting: list[_Batch] = []
        self._waiting_bytes = 0
        self._unanswered: dict[int, _Batch] = {}
        self._added: set[TopicPartition] = set()
        self._connections: dict[HostPort, BlockingConnection] = {}
        self._flying: dict[HostPort, deque[list[_Batch]]] = {}

    def send(self, records: GatheredRecords) -> None:
        """Seal records as a batch, and send it with the next request; the payload is copied.

        Raises:
            ApiError: a broker refused a batch for good.
            ClientError: a broker could not be asked.
        """
        self._numbers += 1
        batch = _Batch(self._numbers, records.partition, self._seal(records))
        self._waiting.append(batch)
        self._waiting_bytes += len(batch.data)
        if self._waiting_bytes >= _REQUEST_BYTES:
            self._dispatch()

    def flush(self) -> None:
        """Send everything and wait until the brokers have stored it.

        Raises:
            ApiError: a broker refused a batch for good.
            ClientError: a broker could not be asked.
        """
        self._dispatch()
        try:
            for address, requests in self._flying.items():
                while requests:
                    self._receive(address)
        except (ApiError, ClientError) as error:
            self._send_again(error)

    def close(self) -> None:
        """Close the connections; answers that are still open are dropped."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        self._flying.clear()

    def _seal(self, records: GatheredRecords) -> bytes:
        producer_id, epoch = self._identity or (-1, -1)
        sequence = NO_SEQUENCE
        if self._identity is not None:
            sequence = self._sequences.get(records.partition, 0)
            self._sequences[records.partition] = add_to_sequence(sequence, records.record_count)
        header = BatchHeader(
            base_offset=0,
            batch_length=0,
            leader_epoch=-1,
            magic=MAGIC,
            crc=0,
            attributes=self._codec | (TRANSACTIONAL_FLAG if self._transactional_id else 0),
            last_offset_delta=records.record_count - 1,
            base_timestamp=records.timestamp_ms,
            max_timestamp=records.timestamp_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            record_count=records.record_count,
        )
        payload = compress(self._codec, records.payload) if self._codec else records.payload
        return seal_batch(header, payload)

    def _dispatch(self) -> None:
        """Send the waiting batches; wait only where too many requests are in flight."""
        batches, self._waiting, self._waiting_bytes = self._waiting, [], 0
        new = {batch.partition for batch in batches} - self._added
        if new and self._add_partitions is not None:
            self._add_partitions(sorted(new))
        self._added |= new
        self._unanswered.update((batch.number, batch) for batch in batches)
        try:
            for request in _requests(batches):
                self._send_to_leaders(request)
        except (ApiError, ClientError) as error:
            self._send_again(error)

    def _send_to_leaders(self, batches: list[_Batch]) -> None:
        view = self._client.current_view(sorted({batch.partition.topic for batch in batches}))
        led: dict[HostPort, list[_Batch]] = {}
        for batch in batches:
            leader = view.leader_of(batch.partition)
            led.setdefault(HostPort(leader.host, leader.port), []).append(batch)
        for address, part in led.items():
            flying = self._flying.setdefault(address, deque())
            while len(flying) >= self._max_in_flight:
                self._receive(address)
            self._connection(address, part[0].partition).send(
                self._request(part), ProduceResponse, last_version=LAST_PRODUCE_VERSION
            )
            flying.append(part)

    def _request(self, batches: Iterable[_Batch]) -> ProduceRequest:
        return produce_batches_request(
            {batch.partition: batch.data for batch in batches},
            acks=self._acks,
            timeout_ms=self._client.settings.request_timeout_ms,
            transactional_id=self._transactional_id,
        )

    def _connection(self, address: HostPort, leads: TopicPartition) -> BlockingConnection:
        """Return this sender's connection to the leader of a partition."""
        connection = self._connections.get(address)
        if connection is None or not connection.is_open:
            connection = self._client.open_leader(leads)
            self._connections[address] = connection
        return connection

    def _receive(self, address: HostPort) -> None:
        answer = self._connections[address].receive()
        assert isinstance(answer, ProduceResponse)
        self._note(self._flying[address].popleft(), answer)

    def _note(self, sent: Iterable[_Batch], answer: ProduceResponse) -> None:
        """Forget the stored batches.

        Raises:
            ApiError: the first batch that was refused.
            ProtocolViolation: the answer is not about these batches.
        """
        numbers = {batch.partition: batch.number for batch in sent}
        answered = {
            TopicPartition(topic.name, response.index)
            for topic in answer.responses
            for response in topic.partition_responses
        }
        if answered != numbers.keys():
            differing = ", ".join(map(str, sorted(answered ^ numbers.keys())))
            raise ProtocolViolation(f"the answer to Produce has other partitions: {differing}")
        refused: ApiError | None = None
        for topic in answer.responses:
            for response in topic.partition_responses:
                partition = TopicPartition(topic.name, response.index)
                if response.error_code in _STORED:
                    self._unanswered.pop(numbers[partition], None)
                    continue
                try:
                    raise_for(response.error_code, f"batch for {partition}", response.error_message)
                except ApiError as error:
                    refused = refused or error
        if refused is not None:
            raise refused

    def _send_again(self, error: ApiError | ClientError) -> None:
        """Send all unanswered batches again, one at a time and in order."""
        self.close()
        if self._identity is None or not _may_be_sent_again(error):
            raise error
        self._client.forget_metadata()
        for unanswered in list(self._unanswered.values()):
            self._client.retrying(lambda batch=unanswered: self._exchange(batch))  # type: ignore[misc]

    def _exchange(self, batch: _Batch) -> None:
        view = self._client.current_view([batch.partition.topic])
        leader = view.leader_of(batch.partition)
        connection = self._connection(HostPort(leader.host, leader.port), batch.partition)
        answer = connection.request(
            self._request([batch]), ProduceResponse, last_version=LAST_PRODUCE_VERSION
        )
        self._note([batch], answer)


def _may_be_sent_again(error: ApiError | ClientError) -> bool:
    # A batch behind a refused one in the same partition is out of order until that one is stored.
    if isinstance(error, ApiError) and error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
        return True
    return is_worth_retrying(error)


def _requests(batches: Iterable[_Batch]) -> list[list[_Batch]]:
    """Return the batches in requests: each has at most one batch of a partition, in order."""
    requests: list[list[_Batch]] = []
    used: dict[TopicPartition, int] = {}
    for batch in batches:
        number = used.get(batch.partition, 0)
        used[batch.partition] = number + 1
        if number == len(requests):
            requests.append([])
        requests[number].append(batch)
    return requests
