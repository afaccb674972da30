"""Verifies with the coordinators that partitions belong to transactions (KIP-890).

A broker gets one request at a time. Verifications that arrive meanwhile share the next one.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from spindle.common.errors import ErrorCode
from spindle.common.ids import TRANSACTIONS_TOPIC, TopicPartition
from spindle.config.node_config import NodeConfig
from spindle.coordinator.partitioning import partition_for
from spindle.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
from spindle.raft.ready import Destination
from spindle.runtime import background
from spindle.runtime.metrics.durations import Durations
from spindle.runtime.peers.port import PeerLacksVersion, Peers, PeerUnavailable
from spindle.serving.ports import HasImage
from spindle.serving.topology import endpoint_of

log = logging.getLogger(__name__)

Transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
Topic = Transaction.AddPartitionsToTxnTopic
Codes = Mapping[TopicPartition, ErrorCode]

_SEEN_BY_PRODUCERS: Final = {ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH}
"""Errors of the coordinator for which producers expect another code."""


class _Question:
    """The partitions of one transaction to verify together."""

    def __init__(
        self, transactional_id: str, producer_id: int, producer_epoch: int, *, adds: bool
    ) -> None:
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.adds = adds
        self.partitions: dict[TopicPartition, None] = {}
        self._answered: asyncio.Future[Codes] = asyncio.get_running_loop().create_future()

    def is_like(self, other: "_Question") -> bool:
        """Return whether both are about the same producer and the same kind of verification."""
        return (self.producer_id, self.producer_epoch, self.adds) == (
            other.producer_id,
            other.producer_epoch,
            other.adds,
        )

    def encoded(self) -> Transaction:
        """Return the question as a part of a request."""
        topics: dict[str, list[int]] = {}
        for topic, index in self.partitions:
            topics.setdefault(topic, []).append(index)
        return Transaction(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            verify_only=not self.adds,
            topics=[Topic(name=topic, partitions=indexes) for topic, indexes in topics.items()],
        )

    def answer(self, codes: Codes) -> None:
        """Set the result; a later one is ignored."""
        if not self._answered.done():
            self._answered.set_result(codes)

    def answer_all(self, code: ErrorCode) -> None:
        """Set the same result for all partitions."""
        self.answer(dict.fromkeys(self.partitions, code))

    async def answered(self, partitions: Sequence[TopicPartition]) -> Codes:
        """Return the result of some of the partitions."""
        codes = await asyncio.shield(self._answered)
        return {partition: codes[partition] for partition in partitions}


class _Coordinator:
    """Verification requests queued for one broker."""

    def __init__(self, peers: Peers, destination: Destination) -> None:
        self._peers = peers
        self._destination = destination
        self._waiting: dict[str, _Question] = {}
        self._task: asyncio.Task[None] | None = None

    def ask(self, question: _Question) -> _Question:
        """Add a question to the next request; return the queued one, which gets the result."""
        waiting = self._waiting.get(question.transactional_id)
        if waiting is not None and waiting.is_like(question):
            waiting.partitions |= question.partitions
            return waiting
        if waiting is not None:
            if question.producer_epoch < waiting.producer_epoch:
                question.answer_all(ErrorCode.INVALID_PRODUCER_EPOCH)
                return question
            is_fenced = waiting.producer_epoch < question.producer_epoch
            waiting.answer_all(
                ErrorCode.INVALID_PRODUCER_EPOCH if is_fenced else ErrorCode.NETWORK_EXCEPTION
            )
        self._waiting[question.transactional_id] = question
        if self._task is None or self._task.done():
            self._task = background.run_once(self._send_all(), "verification of transactions")
        return question

    async def stop(self) -> None:
        """Stop; waiting questions fail."""
        await background.end(self._task)
        self._fail_waiting()

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                questions, self._waiting = self._waiting, {}
                try:
                    await self._send(questions)
                finally:
                    # Questions with a result ignore this.
                    for question in questions.values():
                        question.answer_all(ErrorCode.NETWORK_EXCEPTION)
        finally:
            # A question still waits only after a bug, and would never be sent.
            self._fail_waiting()

    async def _send(self, questions: Mapping[str, _Question]) -> None:
        request = AddPartitionsToTxnRequest(
            transactions=[question.encoded() for question in questions.values()]
        )
        try:
            response = await self._peers.request(self._destination, request)
        except PeerUnavailable as error:
            log.warning("%d transactions could not be verified: %s", len(questions), error)
            return
        except PeerLacksVersion as error:
            # The coordinator does not support verification: append without it, as Kafka does.
            log.warning("The coordinator cannot verify transactions: %s", error)
            for question in questions.values():
                question.answer_all(ErrorCode.NONE)
            return
        assert isinstance(response, AddPartitionsToTxnResponse)
        if response.error_code:
            code = ErrorCode(response.error_code)
            log.error("%s refused to verify transactions: %s", self._destination, code.name)
            if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                # The producer must not mistake it for an error of its own rights.
                code = ErrorCode.INVALID_TXN_STATE
            for question in questions.values():
                question.answer_all(code)
            return
        for result in response.results_by_transaction:
            asked = questions.get(result.transactional_id)
            if asked is not None:
                asked.answer(_codes(asked, result))

    def _fail_waiting(self) -> None:
        for question in self._waiting.values():
            question.answer_all(ErrorCode.NETWORK_EXCEPTION)
        self._waiting.clear()


def _codes(
    question: _Question, result: AddPartitionsToTxnResponse.AddPartitionsToTxnResult
) -> Codes:
    codes = dict.fromkeys(question.partitions, ErrorCode.NETWORK_EXCEPTION)
    for topic in result.topic_results:
        for partition in topic.results_by_partition:
            code = ErrorCode(partition.partition_error_code)
            where = TopicPartition(topic.name, partition.partition_index)
            codes[where] = _SEEN_BY_PRODUCERS.get(code, code)
    return codes


class CoordinatorQuestions:
    """Implements `TransactionVerification` over connections to the coordinators.

    Args:
        metadata: names the leader of the coordinator's partition.
        connect: makes connections to other brokers, with a client id.
    """

    def __init__(
        self, config: NodeConfig, metadata: HasImage, connect: Callable[[str], Peers]
    ) -> None:
        self._metadata = metadata
        self._listener = config.inter_broker_listener_name
        self._peers = connect(f"broker-{config.node_id}-verification")
        self._coordinators: dict[Destination, _Coordinator] = {}
        self.times = Durations()
        """Questions, from the request of a producer to the answer for it."""
        self.failures = 0
        """Partitions with an error in the answers."""

    async def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        adds: bool,
    ) -> Codes:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        codes = await self._ask(transactional_id, producer_id, producer_epoch, partitions, adds)
        self.times.observe(loop.time() - began_s)
        self.failures += sum(code is not ErrorCode.NONE for code in codes.values())
        return codes

    async def _ask(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        adds: bool,
    ) -> Codes:
        destination = self._coordinator_of(transactional_id)
        if destination is None:
            return dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        coordinator = self._coordinators.get(destination)
        if coordinator is None:
            coordinator = _Coordinator(self._peers, destination)
            self._coordinators[destination] = coordinator
        question = _Question(transactional_id, producer_id, producer_epoch, adds=adds)
        question.partitions = dict.fromkeys(partitions)
        return await coordinator.ask(question).answered(partitions)

    async def stop(self) -> None:
        """Close the connections; questions without an answer fail."""
        coordinators = list(self._coordinators.values())
        self._coordinators.clear()
        for coordinator in coordinators:
            await coordinator.stop()
        self._peers.close()

    def _coordinator_of(self, transactional_id: str) -> Destination | None:
        image = self._metadata.image
        topic = image.topics.by_name.get(TRANSACTIONS_TOPIC)
        if topic is None:
            return None
        index = partition_for(transactional_id, len(topic.partitions))
        leader = topic.partitions[index].leader
        endpoint = endpoint_of(image, leader, self._listener)
        return None if endpoint is None else Destination(leader, endpoint.host, endpoint.port)
