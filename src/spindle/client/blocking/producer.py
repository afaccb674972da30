"""Send records in idempotent batches, one request at a time (KIP-98)."""

import contextlib
from collections.abc import Sequence
from typing import Final

from spindle.client.blocking.client import WireClient
from spindle.client.errors import UnsupportedByPeer, raise_for
from spindle.client.producing import Appended, produce_request
from spindle.client.transactions import ProducerIdentity
from spindle.common.ids import TopicPartition
from spindle.protocol import versions
from spindle.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from spindle.protocol.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from spindle.protocol.records.builder import SimpleRecord, build_batch
from spindle.protocol.sentinels import ACKS_ALL

_SEQUENCE_MASK: Final = 0x7FFFFFFF
_TRANSACTION_TIMEOUT_MS: Final = 0x7FFFFFFF
_LAST_VERSION_BY_NAME: Final = versions.PRODUCE_TOPIC_IDS - 1


def idempotent_producer(client: WireClient) -> ProducerIdentity:
    """Return the identity of a new producer without transactions.

    Raises:
        UnsupportedByPeer: the brokers know no idempotent producers.
        ApiError: the broker refused.
        ClientError: no broker could be asked.
    """
    request = InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS
    )

    def attempt() -> ProducerIdentity:
        answer = client.ask(request, InitProducerIdResponse)
        raise_for(answer.error_code, "InitProducerId")
        return ProducerIdentity(answer.producer_id, answer.producer_epoch)

    return client.retrying(attempt)


class BlockingProducer:
    """A producer without transactions; with acks=all a retried batch is stored once.

    Args:
        acks: -1 for all in-sync replicas, 1 for the leader only, 0 for no answer.
        codec: The compression codec of batches, by the number of the format.
    """

    def __init__(self, client: WireClient, *, acks: int = ACKS_ALL, codec: int = 0) -> None:
        self._client = client
        self._acks = acks
        self._codec = codec
        self._producer_id = NO_PRODUCER_ID
        self._producer_epoch = NO_PRODUCER_EPOCH
        self._next_sequence: dict[TopicPartition, int] = {}
        self._started = False

    def send(self, partition: TopicPartition, records: Sequence[SimpleRecord]) -> Appended | None:
        """Append records as one batch; return None with acks 0, to which brokers do not respond.

        Raises:
            ApiError: the leader refused the batch.
            ClientError: the leader could not be asked.
        """
        self._start()
        sequence = NO_SEQUENCE
        if self._producer_id != NO_PRODUCER_ID:
            sequence = self._next_sequence.get(partition, 0)
        batch = build_batch(
            records,
            codec=self._codec,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=sequence,
        )
        if self._acks == 0:
            self._send_blindly(partition, batch)
            return None
        appended = self._client.produce(partition, batch, acks=self._acks)
        if sequence != NO_SEQUENCE:
            self._next_sequence[partition] = sequence + len(records) & _SEQUENCE_MASK
        return appended

    def _start(self) -> None:
        if self._started or self._acks != ACKS_ALL:
            return
        with contextlib.suppress(UnsupportedByPeer):
            self._producer_id, self._producer_epoch = idempotent_producer(self._client)
        self._started = True

    def _send_blindly(self, partition: TopicPartition, batch: bytes) -> None:
        def attempt() -> None:
            view = self._client.current_view((partition.topic,))
            topic_id = view.topic(partition.topic).topic_id
            request = produce_request(
                partition,
                topic_id,
                batch,
                acks=0,
                timeout_ms=self._client.settings.request_timeout_ms,
            )
            self._client.connection(view.leader_of(partition)).send_without_answer(
                request, last_version=_LAST_VERSION_BY_NAME
            )

        self._client.retrying(attempt)
