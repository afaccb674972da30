"""Questions to coordinators about transactions: what is sent, and what an answer means."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from cluster_image import LISTENER, ClusterImage

from spindle.common.errors import ErrorCode
from spindle.common.ids import TRANSACTIONS_TOPIC, TopicPartition
from spindle.config.node_config import NodeConfig
from spindle.protocol.message import Message
from spindle.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
from spindle.raft.ready import Destination
from spindle.runtime.coordinator.transaction_verification import CoordinatorQuestions
from spindle.runtime.peers.port import PeerLacksVersion, PeerUnavailable

A, B = TopicPartition("a", 0), TopicPartition("b", 3)
Result = AddPartitionsToTxnResponse.AddPartitionsToTxnResult
TopicResult = Result.AddPartitionsToTxnTopicResult
CONFIG = NodeConfig.from_properties(
    {
        "process.roles": "broker",
        "node.id": "1",
        "listeners": f"{LISTENER}://host1:9092",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "9@host9:9093",
        "log.dirs": "/disk0",
    }
)


class Coordinators:
    """Brokers that answer as told, after `gate` if there is one."""

    def __init__(self) -> None:
        self.cluster = ClusterImage(1, 2)
        self.requests: list[tuple[Destination, AddPartitionsToTxnRequest]] = []
        self.codes: dict[TopicPartition, ErrorCode] = {}
        self.refusal = ErrorCode.NONE
        self.failure: Exception | None = None
        self.is_silent = False
        self.gate: asyncio.Event | None = None
        self.is_closed = False
        self.questions = CoordinatorQuestions(CONFIG, self.cluster, lambda client_id: self)

    async def request(self, destination: Destination, message: Message) -> Message:
        assert isinstance(message, AddPartitionsToTxnRequest)
        self.requests.append((destination, message))
        if self.gate is not None:
            await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        if self.refusal:
            return AddPartitionsToTxnResponse(error_code=self.refusal)
        transactions = [] if self.is_silent else message.transactions
        return AddPartitionsToTxnResponse(
            results_by_transaction=[
                Result(
                    transactional_id=transaction.transactional_id,
                    topic_results=[
                        TopicResult(
                            name=topic.name,
                            results_by_partition=[
                                TopicResult.AddPartitionsToTxnPartitionResult(
                                    partition_index=index,
                                    partition_error_code=self.codes.get(
                                        TopicPartition(topic.name, index), ErrorCode.NONE
                                    ),
                                )
                                for index in topic.partitions
                            ],
                        )
                        for topic in transaction.topics
                    ],
                )
                for transaction in transactions
            ]
        )

    def close(self) -> None:
        self.is_closed = True

    async def ask(
        self, *partitions: TopicPartition, name: str = "copy", epoch: int = 0, adds: bool = False
    ) -> Mapping[TopicPartition, ErrorCode]:
        return await self.questions.verify(name, 7, epoch, partitions, adds=adds)

    def start(self, *partitions: TopicPartition, **options: Any) -> "asyncio.Task[Any]":
        return asyncio.get_running_loop().create_task(self.ask(*partitions, **options))

    def sent(self) -> list[list[tuple[str, int, bool, list[tuple[str, list[int]]]]]]:
        return [
            [
                (
                    transaction.transactional_id,
                    transaction.producer_epoch,
                    transaction.verify_only,
                    [(topic.name, topic.partitions) for topic in transaction.topics],
                )
                for transaction in request.transactions
            ]
            for _, request in self.requests
        ]


@asynccontextmanager
async def started_coordinators(
    leaders: Sequence[Sequence[int]] = ((2,),),
) -> AsyncIterator[Coordinators]:
    coordinators = Coordinators()
    if leaders:
        coordinators.cluster.create(TRANSACTIONS_TOPIC, *leaders)
    yield coordinators
    await coordinators.questions.stop()
    assert coordinators.is_closed


async def test_the_broker_that_leads_the_partition_of_the_id_is_asked() -> None:
    async with started_coordinators() as c:
        assert await c.ask(A, B) == {A: ErrorCode.NONE, B: ErrorCode.NONE}
        assert [destination for destination, _ in c.requests] == [Destination(2, "host2", 9092)]
        assert c.sent() == [[("copy", 0, True, [("a", [0]), ("b", [3])])]]


async def test_this_broker_itself_may_be_asked() -> None:
    async with started_coordinators([(1,)]) as c:
        await c.ask(A, adds=True)
        assert [destination.id for destination, _ in c.requests] == [1]
        assert [transaction.verify_only for transaction in c.requests[0][1].transactions] == [False]


async def test_without_a_coordinator_nobody_is_asked() -> None:
    async with started_coordinators([]) as c:
        expected = {A: ErrorCode.COORDINATOR_NOT_AVAILABLE}
        assert await c.ask(A) == expected
        c.cluster.create(TRANSACTIONS_TOPIC, (2,))
        c.cluster.fence(2)
        assert await c.ask(A) == expected
        assert c.requests == []


async def test_questions_during_a_request_are_sent_together() -> None:
    async with started_coordinators() as c:
        c.gate = asyncio.Event()
        first = c.start(A)
        await asyncio.sleep(0)
        later = [c.start(A, name="x"), c.start(A, name="y"), c.start(B, name="x")]
        await asyncio.sleep(0)
        c.gate.set()
        assert [await task for task in (first, *later)] == [
            {A: ErrorCode.NONE},
            {A: ErrorCode.NONE},
            {A: ErrorCode.NONE},
            {B: ErrorCode.NONE},
        ]
        assert [[question[0] for question in request] for request in c.sent()] == [
            ["copy"],
            ["x", "y"],
        ]
        assert c.sent()[1][0] == ("x", 0, True, [("a", [0]), ("b", [3])])


@pytest.mark.parametrize(
    ("epochs", "codes"),
    [
        ((1, 2), ("INVALID_PRODUCER_EPOCH", "NONE")),
        ((2, 1), ("NONE", "INVALID_PRODUCER_EPOCH")),
    ],
)
async def test_the_lower_one_of_two_waiting_epochs_is_fenced(
    epochs: tuple[int, int], codes: tuple[str, str]
) -> None:
    async with started_coordinators() as c:
        c.gate = asyncio.Event()
        c.start(A, name="other")
        await asyncio.sleep(0)
        tasks = [c.start(A, epoch=epoch) for epoch in epochs]
        await asyncio.sleep(0)
        c.gate.set()
        assert tuple([(await task)[A].name for task in tasks]) == codes


async def test_to_add_and_to_verify_are_two_questions() -> None:
    async with started_coordinators() as c:
        c.gate = asyncio.Event()
        c.start(A, name="other")
        await asyncio.sleep(0)
        tasks = [c.start(A, adds=False), c.start(A, adds=True)]
        await asyncio.sleep(0)
        c.gate.set()
        assert [(await task)[A].name for task in tasks] == ["NETWORK_EXCEPTION", "NONE"]


async def test_a_fenced_producer_is_reported_as_an_old_epoch() -> None:
    async with started_coordinators() as c:
        c.codes = {A: ErrorCode.PRODUCER_FENCED, B: ErrorCode.TRANSACTION_ABORTABLE}
        assert await c.ask(A, B) == {
            A: ErrorCode.INVALID_PRODUCER_EPOCH,
            B: ErrorCode.TRANSACTION_ABORTABLE,
        }


@pytest.mark.parametrize(
    ("refusal", "told"),
    [
        ("CLUSTER_AUTHORIZATION_FAILED", "INVALID_TXN_STATE"),
        ("COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_LOAD_IN_PROGRESS"),
    ],
)
async def test_a_refused_request_is_the_answer_for_all(refusal: str, told: str) -> None:
    async with started_coordinators() as c:
        c.refusal = ErrorCode[refusal]
        assert await c.ask(A, B) == dict.fromkeys((A, B), ErrorCode[told])


async def test_a_broker_that_does_not_answer_is_a_network_error() -> None:
    async with started_coordinators() as c:
        c.failure = PeerUnavailable("gone")
        assert await c.ask(A) == {A: ErrorCode.NETWORK_EXCEPTION}
        c.failure, c.is_silent = None, True
        assert await c.ask(A) == {A: ErrorCode.NETWORK_EXCEPTION}
        c.is_silent = False
        assert await c.ask(A) == {A: ErrorCode.NONE}


async def test_a_broker_that_knows_no_verification_is_not_needed() -> None:
    async with started_coordinators() as c:
        c.failure = PeerLacksVersion("too old")
        assert await c.ask(A) == {A: ErrorCode.NONE}


async def test_pending_requests_are_answered_on_shutdown() -> None:
    async with started_coordinators() as c:
        c.gate = asyncio.Event()
        tasks = [c.start(A)]
        await asyncio.sleep(0)
        tasks += [c.start(A, name="x")]
        await asyncio.sleep(0)
        await c.questions.stop()
        codes = [(await task)[A] for task in tasks]
        assert codes == [ErrorCode.NETWORK_EXCEPTION] * 2


async def test_an_unexpected_failure_leaves_no_question_without_an_answer() -> None:
    async with started_coordinators() as c:
        c.gate = asyncio.Event()
        c.failure = RuntimeError("unexpected")
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        first = c.start(A)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        second = c.start(A, name="another")
        await asyncio.sleep(0)
        c.gate.set()
        answers = await asyncio.wait_for(asyncio.gather(first, second), 5)
        assert list(answers) == [{A: ErrorCode.NETWORK_EXCEPTION}] * 2
