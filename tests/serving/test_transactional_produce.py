"""Transactional Produce: verification, its errors at each version, and the order of records."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pytest
from serving_scenario import Produced, ServingScenario, code_of

from spindle.common.errors import ErrorCode, ProtocolViolation
from spindle.common.ids import TopicPartition
from spindle.log.log_config import LogConfig
from spindle.protocol.messages.produce import ProduceRequest
from spindle.protocol.records.control import EndTransactionMarker, build_end_transaction
from spindle.protocol.records.validation import AppendOrigin
from spindle.protocol.sentinels import ACKS_ALL
from spindle.serving.handlers.produce import produce
from spindle.serving.produce_order import ProduceOrder

PRODUCER = 7
TOPIC = TopicPartition("t", 0)


class Coordinator:
    """Verifies as told, at once or when released.

    Attributes:
        asked: (producer epoch, partitions, adds) of each question.
        codes: error of each partition; without an entry it belongs to the transaction.
        passing: errors of the next questions; they come before `codes`.
    """

    def __init__(self, loop: Any) -> None:
        self.asked: list[tuple[int, list[TopicPartition], bool]] = []
        self.codes: dict[TopicPartition, ErrorCode] = {}
        self.passing: list[ErrorCode] = []
        self._loop = loop
        self._held: list[Any] | None = None

    def hold(self) -> None:
        self._held = []

    def release(self) -> None:
        held, self._held = self._held or [], None
        for promise in held:
            promise.set_result(None)

    async def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        adds: bool,
    ) -> Mapping[TopicPartition, ErrorCode]:
        assert (transactional_id, producer_id) == ("copy", PRODUCER)
        self.asked.append((producer_epoch, list(partitions), adds))
        if self._held is not None:
            self._held.append(self._loop.create_future())
            await self._held[-1]
        if self.passing:
            return dict.fromkeys(partitions, self.passing.pop(0))
        return {where: self.codes.get(where, ErrorCode.NONE) for where in partitions}


class TransactionScenario(ServingScenario):
    """Broker 1 leads "t" alone."""

    def __init__(self) -> None:
        super().__init__()
        self.coordinator: Any = Coordinator(self.loop)
        self.services.verification = self.coordinator
        self.create("t", [1])

    def ask(self, value: str, sequence: int = 0, *, epoch: int = 0, **options: Any) -> str:
        options.setdefault("transactional_id", "copy")
        return self.ask_produce(
            value,
            producer_id=PRODUCER,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=True,
            **options,
        )

    def send(self, value: str, sequence: int = 0, **options: Any) -> Produced:
        return self.produced(self.ask(value, sequence, **options))

    def write_marker(self, *, epoch: int, topic: str = "t") -> None:
        marker = build_end_transaction(EndTransactionMarker(False, 0), PRODUCER, epoch, 0)
        self.partition(topic).append(
            marker, 1, 0, AppendOrigin.COORDINATOR, lambda info, error: None
        )
        self.settle()


def code(s: TransactionScenario, value: str = "a", sequence: int = 0, **options: Any) -> ErrorCode:
    return code_of(s.send(value, sequence, **options))


# -- what is verified


def test_only_the_first_records_of_a_transaction_are_verified() -> None:
    s = TransactionScenario()
    assert [s.send("a", 0).base_offset, s.send("b", 1).base_offset] == [0, 1]
    assert s.coordinator.asked == [(0, [TOPIC], True)]


@pytest.mark.parametrize(("version", "adds"), [(3, False), (11, False), (12, True), (13, True)])
def test_newer_clients_let_the_leader_add_the_partition(version: int, adds: bool) -> None:
    s = TransactionScenario()
    assert code(s, version=version) == ErrorCode.NONE
    assert [asked[2] for asked in s.coordinator.asked] == [adds]


def test_another_epoch_is_verified_again() -> None:
    s = TransactionScenario()
    s.send("a", 0)
    s.write_marker(epoch=1)
    assert code(s, "b", 0, epoch=1) == ErrorCode.NONE
    assert [asked[0] for asked in s.coordinator.asked] == [0, 1]


def test_a_broker_that_does_not_verify_asks_only_to_add() -> None:
    s = TransactionScenario()
    s.partition().log.config = LogConfig(verifies_transactions=False)
    assert code(s, version=11) == ErrorCode.NONE
    assert s.coordinator.asked == []
    s.write_marker(epoch=1)
    assert code(s, epoch=1, version=12) == ErrorCode.NONE
    assert len(s.coordinator.asked) == 1


def test_all_partitions_of_a_request_are_asked_for_together() -> None:
    s = TransactionScenario()
    s.create("u", [1])
    s.coordinator.codes[TopicPartition("u", 0)] = ErrorCode.INVALID_TXN_STATE
    request = several(s, ["t", "u"], [PRODUCER, PRODUCER])
    token = s._send(produce, 13, request)
    codes = [p.error_code for topic in s.answer(token).responses for p in topic.partition_responses]
    assert codes == [ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE]
    assert [sorted(asked[1]) for asked in s.coordinator.asked] == [
        [TopicPartition("t", 0), TopicPartition("u", 0)]
    ]


def test_a_partition_that_is_named_twice_is_answered_twice() -> None:
    s = TransactionScenario()
    token = s._send(produce, 13, several(s, ["t", "t"], [PRODUCER, PRODUCER]))
    codes = [p.error_code for topic in s.answer(token).responses for p in topic.partition_responses]
    assert codes == [ErrorCode.NONE, ErrorCode.NONE]
    assert s.partition().log.log_end_offset == 1


def several(
    s: TransactionScenario, topics: Sequence[str], producers: Sequence[int]
) -> ProduceRequest:
    return ProduceRequest(
        transactional_id="copy",
        acks=ACKS_ALL,
        timeout_ms=60_000,
        topic_data=[
            ProduceRequest.TopicProduceData(
                topic_id=s.image.topics.by_name[topic].topic_id,
                partition_data=[
                    ProduceRequest.TopicProduceData.PartitionProduceData(
                        index=0,
                        records=s.batch(
                            "x",
                            producer_id=producer,
                            producer_epoch=0,
                            base_sequence=0,
                            is_transactional=True,
                        ),
                    )
                ],
            )
            for topic, producer in zip(topics, producers, strict=True)
        ],
    )


# -- what is refused


def test_transactional_records_need_a_transactional_id() -> None:
    s = TransactionScenario()
    expected = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert code(s, transactional_id=None) == expected
    assert s.partition().log.log_end_offset == 0


def test_several_producers_in_a_request_are_refused() -> None:
    s = TransactionScenario()
    s.create("u", [1])
    token = s._send(produce, 13, several(s, ["t", "u"], [PRODUCER, 8]))
    codes = {p.error_code for topic in s.answer(token).responses for p in topic.partition_responses}
    assert codes == {ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    assert s.partition().log.log_end_offset == 0


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize(
    ("told", "old", "abortable", "adding"),
    [
        ("INVALID_TXN_STATE", "INVALID_TXN_STATE", "INVALID_TXN_STATE", "INVALID_TXN_STATE"),
        (
            "TRANSACTION_ABORTABLE",
            "INVALID_TXN_STATE",
            "TRANSACTION_ABORTABLE",
            "TRANSACTION_ABORTABLE",
        ),
        (
            "CONCURRENT_TRANSACTIONS",
            "NOT_ENOUGH_REPLICAS",
            "NOT_ENOUGH_REPLICAS",
            "CONCURRENT_TRANSACTIONS",
        ),
        ("NOT_COORDINATOR", *["NOT_ENOUGH_REPLICAS"] * 3),
        ("NETWORK_EXCEPTION", *["NOT_ENOUGH_REPLICAS"] * 3),
        ("COORDINATOR_LOAD_IN_PROGRESS", *["NOT_ENOUGH_REPLICAS"] * 3),
        ("COORDINATOR_NOT_AVAILABLE", *["NOT_ENOUGH_REPLICAS"] * 3),
        ("INVALID_PRODUCER_EPOCH", *["INVALID_PRODUCER_EPOCH"] * 3),
        ("INVALID_PRODUCER_ID_MAPPING", *["INVALID_PRODUCER_ID_MAPPING"] * 3),
    ],
)
def test_errors_of_the_coordinator_by_version(
    version: int, told: str, old: str, abortable: str, adding: str
) -> None:
    s = TransactionScenario()
    s.coordinator.codes[TOPIC] = ErrorCode[told]
    token = s.ask("a", version=version)
    s.pass_time(1_000)
    produced = s.produced(token)
    expected = old if version < 11 else abortable if version < 12 else adding
    assert code_of(produced).name == expected
    assert (produced.base_offset, produced.log_start_offset) == (-1, -1)
    assert s.partition().log.log_end_offset == 0


def test_a_fenced_epoch_is_refused_without_asking_the_coordinator() -> None:
    s = TransactionScenario()
    s.write_marker(epoch=5)
    assert code(s, epoch=4) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert s.coordinator.asked == []


def test_plain_records_inside_a_transaction_are_refused() -> None:
    s = TransactionScenario()
    s.send("a", 0)
    produced = s.produce("b", producer_id=PRODUCER, producer_epoch=0, base_sequence=1)
    assert code_of(produced) == ErrorCode.INVALID_TXN_STATE


def test_acks_0_that_is_not_verified_closes_the_connection() -> None:
    s = TransactionScenario()
    s.coordinator.codes[TOPIC] = ErrorCode.INVALID_TXN_STATE
    assert isinstance(s.answer(s.ask("a", acks=0)), ProtocolViolation)


def test_a_disk_that_dies_meanwhile_is_reported() -> None:
    s = TransactionScenario()
    s.coordinator.hold()
    token = s.ask("a")
    s.fail_disk()
    s.coordinator.release()
    s.settle()
    assert code_of(s.produced(token)) == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_leadership_that_ends_meanwhile_is_reported() -> None:
    s = TransactionScenario()
    s.create("u", [1, 2])
    s.coordinator.hold()
    token = s.ask("a", topic="u")
    s.change("u", leader=2)
    s.coordinator.release()
    s.settle()
    assert code_of(s.produced(token)) == ErrorCode.NOT_LEADER_OR_FOLLOWER


# -- order and time


def test_requests_in_flight_keep_their_order_behind_a_verification() -> None:
    s = TransactionScenario()
    s.coordinator.hold()
    tokens = [s.ask(value, sequence) for sequence, value in enumerate("abcd")]
    assert all(s.waits(token) for token in tokens)
    s.coordinator.release()
    s.settle()
    assert [s.produced(token).base_offset for token in tokens] == [0, 1, 2, 3]
    assert len(s.coordinator.asked) == 1


def test_a_batch_whose_verification_failed_is_not_overtaken() -> None:
    s = TransactionScenario()
    s.coordinator.passing = [ErrorCode.NOT_COORDINATOR]
    first, second = s.ask("a", 0), s.ask("b", 1)
    assert code_of(s.produced(first)) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert code_of(s.produced(second)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert [s.send("a", 0).base_offset, s.send("b", 1).base_offset] == [0, 1]


def test_adding_waits_while_the_transaction_before_is_ended() -> None:
    s = TransactionScenario()
    s.coordinator.passing = [ErrorCode.CONCURRENT_TRANSACTIONS] * 2
    token = s.ask("a")
    assert s.waits(token)
    s.pass_time(20)
    assert s.waits(token)
    s.pass_time(20)
    assert code_of(s.produced(token)) == ErrorCode.NONE


def test_adding_does_not_wait_for_ever() -> None:
    s = TransactionScenario()
    s.coordinator.codes[TOPIC] = ErrorCode.CONCURRENT_TRANSACTIONS
    token = s.ask("a")
    for _ in range(6):
        s.pass_time(20)
    assert code_of(s.produced(token)) == ErrorCode.CONCURRENT_TRANSACTIONS
    assert len(s.coordinator.asked) == 6


def test_a_marker_during_the_verification_asks_for_another_one() -> None:
    """The answer may be about the transaction that the marker has ended."""
    s = TransactionScenario()
    s.coordinator.hold()
    token = s.ask("late", epoch=1)
    s.write_marker(epoch=1)
    s.coordinator.codes[TOPIC] = ErrorCode.INVALID_TXN_STATE
    s.coordinator.release()
    s.settle()
    assert code_of(s.produced(token)) == ErrorCode.INVALID_TXN_STATE
    assert s.partition().log.log_end_offset == 1


def test_the_marker_of_the_transaction_before_does_not_fail_the_next_one() -> None:
    s = TransactionScenario()
    s.send("a", 0)
    s.coordinator.hold()
    token = s.ask("b", 0, epoch=1)
    s.write_marker(epoch=1)
    s.coordinator.release()
    s.settle()
    assert (code_of(s.produced(token)), s.produced(token).base_offset) == (ErrorCode.NONE, 2)
    assert len(s.coordinator.asked) == 3


def test_a_repeated_batch_is_a_duplicate_while_its_transaction_is_open() -> None:
    s = TransactionScenario()
    s.send("a", 0)
    again = s.send("a", 0)
    assert (code_of(again), again.base_offset) == (ErrorCode.NONE, 0)
    assert s.partition().log.log_end_offset == 1


def test_a_new_leader_knows_the_open_transaction() -> None:
    s = TransactionScenario()
    s.create("u", [1, 2])
    token = s.ask("a", 0, topic="u", acks=1)
    assert code_of(s.produced(token)) == ErrorCode.NONE
    s.change("u", leader=2)
    s.change("u", leader=1)
    assert code(s, "b", 1, topic="u", acks=1) == ErrorCode.NONE
    assert len(s.coordinator.asked) == 1


def test_thousands_of_turns_end_one_after_another() -> None:
    turns, ended = ProduceOrder(), []

    def turn(number: int) -> None:
        ended.append(number)
        if number:  # the first one waits
            turns.leave("copy")

    for number in range(5_000):
        turns.take("copy", partial(turn, number))
    assert ended == [0]
    turns.leave("copy")
    assert ended == list(range(5_000))
    turns.take("copy", lambda: ended.append(-1))
    assert ended[-1] == -1
