"""The transaction coordinator on the event loop: elections, markers, producer ids."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest
from coordinator_log import MemoryLog, View, image_of, settle, standing_clock, topic
from prometheus_client import Metric

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TRANSACTIONS_TOPIC, TopicPartition
from spindle.coordinator.config import TransactionsConfig
from spindle.coordinator.coordinator_result import Token
from spindle.coordinator.transactions.end_txn import EndRequest
from spindle.coordinator.transactions.records import TransactionRecord
from spindle.coordinator.transactions.shard import TransactionShard, TransactionTimer
from spindle.metadata.feature_image import FeaturesImage
from spindle.metadata.features import TRANSACTION_VERSION
from spindle.metadata.image import MetadataImage
from spindle.protocol.message import Message
from spindle.protocol.messages.allocate_producer_ids import AllocateProducerIdsResponse
from spindle.protocol.messages.init_producer_id import InitProducerIdRequest
from spindle.protocol.messages.list_transactions import ListTransactionsRequest
from spindle.protocol.messages.write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from spindle.raft.ready import Destination
from spindle.runtime.coordinator.shard_work import Operation
from spindle.runtime.coordinator.shard_writer import AnyResult, ShardSettings
from spindle.runtime.coordinator.transaction_coordinator import TransactionCoordinator
from spindle.runtime.metrics.transactions import count_transactions, transaction_metrics
from spindle.runtime.peers.port import PeerUnavailable
from spindle.serving.producer_ids import ProducerIds

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
LISTENER = "PLAINTEXT"


class Controller:
    """Allocates blocks of two producer ids; refuses while `is_down`."""

    def __init__(self) -> None:
        self.next = 0
        self.is_down = False

    async def request(self, _: Message, context: object = None) -> AllocateProducerIdsResponse:
        if self.is_down:
            raise ApiError(ErrorCode.NOT_CONTROLLER)
        self.next += 2
        return AllocateProducerIdsResponse(producer_id_start=self.next - 2, producer_id_len=2)


class Leaders:
    """The leaders of partitions: answers are `codes` in turn, then NONE; None is no answer."""

    def __init__(self) -> None:
        self.codes: list[int | None] = []
        self.requests: list[WriteTxnMarkersRequest] = []
        self.asked = asyncio.Event()
        self.gate: asyncio.Event | None = None
        self.failure: Exception | None = None
        """Is raised by the next request."""
        self.is_closed = False

    async def request(self, _: Destination, message: Message) -> Message:
        assert isinstance(message, WriteTxnMarkersRequest)
        self.requests.append(message)
        self.asked.set()
        if self.gate is not None:
            await self.gate.wait()
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure
        code = self.codes.pop(0) if self.codes else ErrorCode.NONE
        if code is None:
            raise PeerUnavailable("no answer")
        result = WriteTxnMarkersResponse.WritableTxnMarkerResult
        topic_type = result.WritableTxnMarkerTopicResult
        partition = topic_type.WritableTxnMarkerPartitionResult
        return WriteTxnMarkersResponse(
            markers=[
                result(
                    producer_id=marker.producer_id,
                    topics=[
                        topic_type(
                            name=topic.name,
                            partitions=[
                                partition(partition_index=index, error_code=code)
                                for index in topic.partition_indexes
                            ],
                        )
                        for topic in marker.topics
                    ],
                )
                for marker in message.markers
            ]
        )

    def close(self) -> None:
        self.is_closed = True


class TransactionBroker:
    """A broker that leads all partitions of `__transaction_state`."""

    def __init__(self, log: MemoryLog | None = None, settings: ShardSettings | None = None) -> None:
        self.log = log or MemoryLog()
        self.view = View(self.image())
        self.controller = Controller()
        self.leaders = Leaders()
        self.transactions = TransactionCoordinator(
            1,
            TransactionsConfig(append_retry_ms=1),
            self.log,
            self.view,
            standing_clock,
            settings or ShardSettings(retry_ms=1),
            ProducerIds(1, self.controller, asyncio.get_running_loop()),
            LISTENER,
            self.leaders,
        )
        for partition in range(2):
            self.transactions.on_elected(partition, 3)

    def image(self, data_partitions: int = 2, data_leader: int = 1) -> MetadataImage:
        image = image_of(
            topic(TRANSACTIONS_TOPIC, b"x" * 16, 2),
            topic("t", b"t" * 16, data_partitions, data_leader),
        )
        return replace(image, features=FeaturesImage({TRANSACTION_VERSION: 2}))

    async def init(self, name: str = "tx") -> tuple[int, int]:
        response = await self.transactions.init_producer_id(
            InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
        )
        if response.error_code:
            raise ApiError(ErrorCode(response.error_code))
        return response.producer_id, response.producer_epoch

    async def begin(self, name: str = "tx") -> tuple[int, int]:
        producer = await self.init(name)
        await self.transactions.add_partitions(name, producer, [P0, P1], 2)
        return producer

    async def end(self, producer: tuple[int, int], name: str = "tx") -> tuple[int, int]:
        request = EndRequest(*producer, is_commit=True, client_version=2)
        response = await self.transactions.end_transaction(name, request)
        return response.producer_id, response.producer_epoch

    async def until(self, state: str, name: str = "tx") -> None:
        """Wait until a record brings the transactional id into this state."""
        while self.transactions.describe(name).transaction_state != state:
            self.log.grown.clear()
            await self.log.grown.wait()
            await settle()


def fired(shard: TransactionShard, timer: TransactionTimer, after_ms: int) -> Operation[Message]:
    """Return an operation in which the timer fires, as if this time had passed."""

    def operation(_: Token, out: AnyResult) -> None:
        out.now_ms += after_ms
        shard.on_timer(timer, out)

    return operation


@asynccontextmanager
async def transaction_broker() -> AsyncIterator[TransactionBroker]:
    broker = TransactionBroker()
    yield broker
    await broker.transactions.close()
    assert broker.leaders.is_closed


async def test_a_transaction_from_its_producer_id_to_its_completion() -> None:
    async with transaction_broker() as broker:
        producer = await broker.begin()
        assert producer == (0, 0)
        assert await broker.end(producer) == (0, 1)
        await broker.until("CompleteCommit")
        (request,) = broker.leaders.requests
        (marker,) = request.markers
        assert (marker.producer_id, marker.producer_epoch) == (0, 1)
        assert (marker.coordinator_epoch, marker.transaction_version) == (3, 2)
        assert marker.transaction_result
        assert [(t.name, t.partition_indexes) for t in marker.topics] == [("t", [0, 1])]


async def test_markers_of_many_transactions_share_a_request() -> None:
    async with transaction_broker() as broker:
        broker.leaders.gate = asyncio.Event()
        names = [f"tx{n}" for n in range(5)]
        producers = {name: await broker.begin(name) for name in names}
        for name, producer in producers.items():
            await broker.end(producer, name)
        await settle()
        assert len(broker.leaders.requests) == 1
        broker.leaders.gate.set()
        for name in names:
            await broker.until("CompleteCommit", name)
        assert [len(request.markers) for request in broker.leaders.requests] == [1, 4]


@pytest.mark.parametrize(
    "code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_SERVER_ERROR, None]
)
async def test_markers_are_sent_until_they_are_written(code: int | None) -> None:
    async with transaction_broker() as broker:
        broker.leaders.codes = [code, code]
        await broker.end(await broker.begin())
        await broker.until("CompleteCommit")
        assert len(broker.leaders.requests) == 3


async def test_an_unexpected_failure_loses_no_marker() -> None:
    async with transaction_broker() as broker:
        broker.leaders.failure = RuntimeError("unexpected")
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        await broker.end(await broker.begin())
        await broker.until("CompleteCommit")
        assert len(broker.leaders.requests) == 2


async def test_an_unexpected_failure_holds_up_no_markers_that_came_meanwhile() -> None:
    async with transaction_broker() as broker:
        broker.leaders.gate = asyncio.Event()
        broker.leaders.failure = RuntimeError("unexpected")
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        for name in ("a", "b"):  # of different partitions of the transaction topic
            await broker.end(await broker.begin(name), name)
        await settle()
        broker.transactions.on_resigned(1)  # nobody waits for the marker of "a" any more
        broker.leaders.gate.set()
        await broker.until("CompleteCommit", "b")


async def test_markers_wait_for_a_leader() -> None:
    async with transaction_broker() as broker:
        producer = await broker.begin()
        broker.view.image = broker.image(data_leader=-1)
        await broker.end(producer)
        await settle()
        assert broker.leaders.requests == []
        broker.view.image = broker.image()
        await broker.until("CompleteCommit")


def values(metrics: Iterable[Metric]) -> dict[str, float]:
    """Return each sample by the last words of its name, with the value of its label."""
    prefix = "kafka_(server_transaction_coordinator_metrics|coordinator_.*_channel_manager)_"
    return {
        " ".join([re.sub(prefix, "", sample.name), *sample.labels.values()]): sample.value
        for metric in metrics
        for sample in metric.samples
    }


async def test_metrics_follow_markers_on_their_way() -> None:
    async with transaction_broker() as broker:

        async def now(**expected: float) -> None:
            states = await count_transactions(broker.transactions)
            metrics = values(transaction_metrics(broker.transactions, states))
            assert {name: metrics[name.replace("__", " ")] for name in expected} == expected

        producer = await broker.begin()
        await now(
            partition_load_time_seconds_count=2,
            num_partitions=2,
            transactional_id_count__Ongoing=1,
            unknown_destination_queue_size=0,
        )
        broker.view.image = broker.image(data_leader=-1)
        await broker.end(producer)
        await settle()
        await now(transactional_id_count__PrepareCommit=1, unknown_destination_queue_size=2)
        broker.leaders.gate = asyncio.Event()
        broker.leaders.codes = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        broker.view.image = broker.image()
        await broker.leaders.asked.wait()
        await now(queue_size__1=2, unknown_destination_queue_size=0, retry_queue_size=0)
        broker.leaders.gate.set()
        await settle()
        await now(retry_queue_size=2, log_append_retry_queue_size=0)
        broker.log.failure = ErrorCode.NOT_ENOUGH_REPLICAS
        await broker.log.refused.wait()
        await settle()
        await now(retry_queue_size=0, log_append_retry_queue_size=1)
        broker.log.failure = None
        await broker.until("CompleteCommit")
        await now(transactional_id_count__CompleteCommit=1, log_append_retry_queue_size=0)


async def test_deleted_partitions_need_no_marker() -> None:
    async with transaction_broker() as broker:
        producer = await broker.begin()
        broker.view.image = broker.image(data_partitions=0)
        await broker.end(producer)
        await broker.until("CompleteCommit")
        assert broker.leaders.requests == []


async def test_a_fenced_coordinator_sends_no_more_markers() -> None:
    async with transaction_broker() as broker:
        broker.leaders.codes = [ErrorCode.TRANSACTION_COORDINATOR_FENCED]
        await broker.end(await broker.begin())
        await settle()
        assert broker.transactions.describe("tx").transaction_state == "PrepareCommit"
        assert len(broker.leaders.requests) == 1


async def test_markers_whose_report_had_to_wait_for_too_long_are_reported_again() -> None:
    broker = TransactionBroker(settings=ShardSettings(commit_timeout_ms=20))
    await broker.transactions.shards.wait_loaded()
    broker.leaders.gate = asyncio.Event()
    await broker.end(await broker.begin())
    driver = broker.transactions.shards.of("tx")
    broker.log.gate = asyncio.Event()
    stuck = TransactionRecord("other", None)
    driver.submit(lambda _, out: out.records.append(stuck), is_exclusive=True)
    broker.leaders.gate.set()
    await settle()
    # The report waits behind the exclusive operation, as this does.
    with pytest.raises(ApiError, match="COORDINATOR_NOT_AVAILABLE"):
        await driver.submit(lambda *_: None)
    broker.log.gate.set()
    await broker.until("CompleteCommit")
    assert len(broker.leaders.requests) == 1  # a leader may refuse the same marker again
    await broker.transactions.close()


async def test_a_new_coordinator_writes_the_markers_that_are_missing() -> None:
    async with transaction_broker() as broker:
        broker.leaders.gate = asyncio.Event()
        await broker.end(await broker.begin())
        for partition in range(2):
            broker.transactions.on_resigned(partition)
        with pytest.raises(ApiError, match="NOT_COORDINATOR"):
            await broker.init()
        second = TransactionBroker(broker.log)
        await second.until("CompleteCommit")
        assert second.leaders.requests[0].markers[0].producer_epoch == 1
        await second.transactions.close()
        broker.leaders.gate.set()


async def test_a_new_epoch_of_the_same_coordinator_loads_again() -> None:
    async with transaction_broker() as broker:
        broker.leaders.gate = asyncio.Event()
        await broker.end(await broker.begin())
        for partition in range(2):
            broker.transactions.on_elected(partition, 4)
        broker.leaders.gate.set()
        await broker.until("CompleteCommit")
        epochs = [request.markers[0].coordinator_epoch for request in broker.leaders.requests]
        assert epochs[-1] == 4


async def test_producer_ids_come_in_blocks() -> None:
    async with transaction_broker() as broker:
        ids = [(await broker.init(f"tx{n}"))[0] for n in range(5)]
        assert ids == [0, 1, 2, 3, 4]
        broker.controller.is_down = True
        assert await broker.init("tx5") == (5, 0)
        with pytest.raises(ApiError, match="COORDINATOR_LOAD_IN_PROGRESS"):
            await broker.init("tx6")
        broker.controller.is_down = False
        assert await broker.init("tx6") == (6, 0)


async def test_a_burst_of_new_transactional_ids_outlasts_a_block_of_producer_ids() -> None:
    async with transaction_broker() as broker:
        producers = await asyncio.gather(*[broker.init(f"tx{n}") for n in range(7)])
        assert sorted(producers) == [(n, 0) for n in range(7)]


async def test_an_append_that_fails_is_reported_and_changes_nothing() -> None:
    async with transaction_broker() as broker:
        producer = await broker.begin()
        broker.log.failure = ErrorCode.NOT_ENOUGH_REPLICAS
        with pytest.raises(ApiError, match="COORDINATOR_NOT_AVAILABLE"):
            await broker.end(producer)
        broker.log.failure = None
        assert await broker.end(producer) == (0, 1)


async def test_transactions_that_time_out_together_may_need_several_batches() -> None:
    async with transaction_broker() as broker:
        names = [f"tx{n}" for n in range(40)]
        for name in names:
            await broker.begin(name)
        broker.log.limit_bytes = 1_000
        for driver in broker.transactions.shards:
            at, shard = driver.partition, driver.shard
            done = len(broker.log.batches[at])
            driver.submit(fired(shard, TransactionTimer("timeouts"), 60_001))
            await settle()
            assert max(map(len, broker.log.batches[at][done:])) <= 1_000
        for name in names:
            await broker.until("CompleteAbort", name)


async def test_a_name_that_no_record_can_hold_is_refused() -> None:
    async with transaction_broker() as broker:
        name = "x" * 40_000
        for _ in range(2):
            with pytest.raises(ApiError, match="UNKNOWN_SERVER_ERROR"):
                await broker.init(name)


async def test_a_name_that_no_record_can_hold_does_not_keep_others_from_expiring() -> None:
    async with transaction_broker() as broker:
        for name in ("x" * 40_000, "y" * 40_000, "tx0", "tx1"):
            with suppress(ApiError):
                await broker.init(name)
        for driver in broker.transactions.shards:
            driver.submit(fired(driver.shard, TransactionTimer("expiration"), 604_800_000))
        await settle()
        assert [len(driver.shard.ids) for driver in broker.transactions.shards] == [0, 0]


async def test_questions_while_a_partition_is_loading() -> None:
    async with transaction_broker() as broker:
        with pytest.raises(ApiError, match="COORDINATOR_LOAD_IN_PROGRESS"):
            broker.transactions.list_transactions(ListTransactionsRequest())
        loading = broker.transactions.describe("tx")
        assert loading.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await broker.begin()
        listed = broker.transactions.list_transactions(ListTransactionsRequest())
        assert [state.transactional_id for state in listed.transaction_states] == ["tx"]
        assert broker.transactions.describe("").error_code == ErrorCode.INVALID_REQUEST
