"""TxnOffsetCommit: who may add offsets to a transaction, and what becomes of them."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from consumer_group_scenario import ConsumerScenario, topic_id
from coordinator_log import Broker, MemoryLog, context, start_broker, topic
from group_scenario import Scenario, with_config

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import OFFSETS_TOPIC, TopicPartition
from spindle.coordinator.partitioning import partition_for
from spindle.protocol.codec import decode, encode
from spindle.protocol.messages.offset_fetch import OffsetFetchRequest
from spindle.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from spindle.protocol.records.batch import read_header
from spindle.serving.handlers.committed_offsets import handle_offset_fetch
from spindle.serving.handlers.transactional_offsets import handle_txn_offset_commit

T0 = {("t", 0): 5}
RequestTopic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
RequestPartition = RequestTopic.TxnOffsetCommitRequestPartition
FetchGroup = OffsetFetchRequest.OffsetFetchRequestGroup

# ---------------------------------------------------------------- members and generations


def test_a_producer_without_a_member_may_always_add_offsets() -> None:
    s = Scenario()
    assert s.add_offsets(T0) is ErrorCode.NONE
    s.stable_group(group="busy")
    assert s.add_offsets(T0, group="busy") is ErrorCode.NONE


def test_a_generation_of_a_group_that_does_not_exist_is_illegal() -> None:
    assert Scenario().add_offsets(T0, generation=1) is ErrorCode.ILLEGAL_GENERATION


def test_producers_since_version_6_learn_that_a_group_does_not_exist() -> None:
    code = Scenario().add_offsets(T0, generation=1, version=6)
    assert code is ErrorCode.GROUP_ID_NOT_FOUND


def test_the_member_and_its_generation_fence_zombies() -> None:
    s = Scenario()
    (member,) = s.stable_group()
    assert s.add_offsets(T0, member_id=member, generation=1) is ErrorCode.NONE
    assert s.add_offsets(T0, member_id=member, generation=0) is ErrorCode.ILLEGAL_GENERATION
    assert s.add_offsets(T0, member_id="other", generation=1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert s.add_offsets(T0, instance_id="i") is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_instance_id_fences_zombies() -> None:
    s = Scenario()
    joined = s.ask_join(instance_id="i")
    s.advance_until_joined(joined)
    (member,) = s.group().members
    s.sync_all([member])
    assert s.add_offsets(T0, member_id=member, instance_id="i", generation=1) is ErrorCode.NONE
    fenced = s.add_offsets(T0, member_id="old", instance_id="i", generation=1)
    assert fenced is ErrorCode.FENCED_INSTANCE_ID


def test_offsets_are_added_while_the_group_rebalances() -> None:
    s = Scenario()
    (member, join) = s.join()
    s.advance_until_joined(join)
    assert s.add_offsets(T0, member_id=member, generation=1) is ErrorCode.NONE


def test_members_of_consumer_groups_are_fenced_by_their_epoch() -> None:
    s = ConsumerScenario(t=4)
    a = s.join_consumer("a")
    assert s.add_offsets(T0, member_id="a", generation=a.epoch) is ErrorCode.NONE
    assert s.add_offsets(T0) is ErrorCode.NONE
    too_new = s.add_offsets(T0, member_id="a", generation=a.epoch + 1)
    assert too_new is ErrorCode.ILLEGAL_GENERATION
    too_new = s.add_offsets(T0, member_id="a", generation=a.epoch + 1, version=6)
    assert too_new is ErrorCode.STALE_MEMBER_EPOCH
    assert s.add_offsets(T0, member_id="b", generation=a.epoch) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_kept_a_partition_may_use_its_former_epoch() -> None:
    s = ConsumerScenario(t=4)
    a = s.join_consumer("a")
    former_epoch = a.epoch
    b = s.join_consumer("b")
    s.settle(a, b)
    ids = {"t": topic_id("t")}
    mine, others = a.partitions[0], b.partitions[0]

    def add(partition: tuple[str, int], topic_ids: Mapping[str, bytes]) -> ErrorCode:
        return s.add_offsets(
            {partition: 5}, member_id="a", generation=former_epoch, topic_ids=dict(topic_ids)
        )

    assert add(mine, ids) is ErrorCode.NONE
    assert add(others, ids) is ErrorCode.ILLEGAL_GENERATION
    assert add(mine, {}) is ErrorCode.ILLEGAL_GENERATION


def test_offset_metadata_above_the_limit_is_refused() -> None:
    s = with_config(offset_metadata_max_bytes=3)
    assert s.add_offsets(T0, metadata="abcd") is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert s.fetch(("t", 0), require_stable=True) == {("t", 0): -1}


# ---------------------------------------------------------------- over the wire


class Client:
    """A client of a broker, which sends every request through the codec."""

    def __init__(self, broker: Broker, version: int = 5) -> None:
        self.broker = broker
        self.version = version

    async def add(
        self, offsets: dict[tuple[str, int], int], producer_id: int = 7, group: str = "g"
    ) -> dict[tuple[str, int], ErrorCode]:
        topics = [
            RequestTopic(
                name=name,
                topic_id=name.encode() * 16,
                partitions=[RequestPartition(partition_index=index, committed_offset=offset)],
            )
            for (name, index), offset in offsets.items()
        ]
        request = TxnOffsetCommitRequest(
            transactional_id="tx",
            group_id=group,
            producer_id=producer_id,
            producer_epoch=3,
            topics=topics,
        )
        version = self.version
        received, _ = decode(TxnOffsetCommitRequest, version, encode(request, version))
        response = await handle_txn_offset_commit(self.broker, context(version), received)
        read, _ = decode(TxnOffsetCommitResponse, version, encode(response, version))
        return {
            (t.name or t.topic_id[:1].decode(), p.partition_index): ErrorCode(p.error_code)
            for t in read.topics
            for p in t.partitions
        }

    async def end(self, *, is_commit: bool, producer_id: int = 7) -> None:
        for partition in range(2):
            await self.broker.groups.complete_transaction(
                partition, producer_id, 3, 1, is_commit, 2
            )

    async def fetch(self, group: str = "g") -> dict[tuple[str, int], int | ErrorCode]:
        """Return the stable offsets of t-0 and u-0."""
        topics = [
            FetchGroup.OffsetFetchRequestTopics(name=name, partition_indexes=[0]) for name in "tu"
        ]
        request = OffsetFetchRequest(
            groups=[FetchGroup(group_id=group, topics=topics)], require_stable=True
        )
        response = await handle_offset_fetch(self.broker, context(9), request)
        return {
            (t.name, p.partition_index): ErrorCode(p.error_code)
            if p.error_code
            else p.committed_offset
            for t in response.groups[0].topics
            for p in t.partitions
        }


def start(log: MemoryLog | None = None) -> Broker:
    return start_broker(topic("t", b"t" * 16, 1), topic("u", b"u" * 16, 1), log=log)


UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT


@pytest.mark.parametrize("version", range(7))
async def test_offsets_become_visible_with_the_marker(version: int) -> None:
    client = Client(start(), version)
    assert await client.add({("t", 0): 5, ("u", 0): 6}) == {
        ("t", 0): ErrorCode.NONE,
        ("u", 0): ErrorCode.NONE,
    }
    assert await client.fetch() == {("t", 0): UNSTABLE, ("u", 0): UNSTABLE}
    await client.end(is_commit=True)
    assert await client.fetch() == {("t", 0): 5, ("u", 0): 6}


@pytest.mark.parametrize("is_commit", [True, False])
async def test_another_broker_continues_with_an_open_transaction(is_commit: bool) -> None:
    first = Client(start())
    await first.add({("t", 0): 5})
    second = Client(start(first.broker.log))
    assert await second.fetch() == {("t", 0): UNSTABLE, ("u", 0): -1}
    await second.end(is_commit=is_commit)
    third = Client(start(first.broker.log))
    expected = {("t", 0): 5 if is_commit else -1, ("u", 0): -1}
    assert await second.fetch() == await third.fetch() == expected


async def test_the_batch_belongs_to_the_producer() -> None:
    client = Client(start())
    await client.add({("t", 0): 5})
    await client.end(is_commit=True)
    log = client.broker.log.batches
    batches = [batch for items in log.values() for batch in items]
    headers = [read_header(batch, 0) for batch in batches]
    assert all(h.is_transactional for h in headers)
    assert {(h.producer_id, h.producer_epoch) for h in headers} == {(7, 3)}
    assert sorted(h.is_control for h in headers) == [False, True, True]


async def test_partitions_that_do_not_exist_are_refused_alone() -> None:
    client = Client(start())
    assert await client.add({("t", 0): 5, ("t", 9): 5, ("gone", 0): 5}) == {
        ("t", 0): ErrorCode.NONE,
        ("t", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("gone", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


async def test_topics_are_named_by_id_since_version_6() -> None:
    client = Client(start(), version=6)
    assert await client.add({("t", 0): 5, ("t", 9): 5, ("x", 0): 5}) == {
        ("t", 0): ErrorCode.NONE,
        ("t", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("x", 0): ErrorCode.UNKNOWN_TOPIC_ID,
    }


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (1, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (2, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    ],
)
async def test_old_producers_do_not_know_that_a_coordinator_loads(
    version: int, code: ErrorCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = start()

    async def refuse(*_: object) -> TxnOffsetCommitResponse:
        raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    monkeypatch.setattr(broker.groups, "commit_transactional_offsets", refuse)
    assert await Client(broker, version).add({("t", 0): 5}) == {("t", 0): code}
    await broker.groups.wait_loaded()


async def test_an_append_that_fails_adds_no_offset() -> None:
    client = Client(start())
    await client.broker.groups.wait_loaded()
    client.broker.log.failure = ErrorCode.INVALID_PRODUCER_EPOCH
    refused = {("t", 0): ErrorCode.INVALID_PRODUCER_EPOCH}
    assert await client.add({("t", 0): 5}) == refused
    with pytest.raises(ApiError, match="INVALID_PRODUCER_EPOCH"):
        await client.end(is_commit=True)
    assert await client.fetch() == {("t", 0): -1, ("u", 0): -1}


async def test_a_marker_for_a_partition_of_another_broker_is_refused() -> None:
    broker = start()
    await broker.groups.wait_loaded()
    with pytest.raises(ApiError, match="NOT_COORDINATOR"):
        await broker.groups.complete_transaction(9, 7, 3, 1, True, 2)


async def test_a_stable_fetch_waits_for_a_marker_that_is_being_appended() -> None:
    client = Client(start())
    await client.add({("t", 0): 5})
    gate = client.broker.log.gate = asyncio.Event()
    at = partition_for("g", 2)
    ending = asyncio.ensure_future(client.broker.groups.complete_transaction(at, 7, 3, 1, True, 2))
    await asyncio.sleep(0)
    fetching = asyncio.ensure_future(client.fetch())
    await asyncio.sleep(0)
    assert not fetching.done()
    gate.set()
    await ending
    assert await fetching == {("t", 0): 5, ("u", 0): -1}


# ---------------------------------------------------------------- verification (KIP-890)


@pytest.mark.parametrize(("version", "adds"), [(3, False), (4, False), (5, True)])
async def test_the_coordinator_of_the_transaction_is_asked(version: int, adds: bool) -> None:
    client = Client(start(), version)
    await client.add({("t", 0): 5})
    where = TopicPartition(OFFSETS_TOPIC, partition_for("g", 2))
    (question,) = client.broker.verification.asked
    assert question[1:] == (7, 3, where, adds)


@pytest.mark.parametrize(
    ("version", "code", "told"),
    [
        (5, ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
        (4, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (3, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE),
        (5, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS),
        (5, ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    ],
)
async def test_offsets_outside_of_a_transaction_are_refused(
    version: int, code: ErrorCode, told: ErrorCode
) -> None:
    client = Client(start(), version)
    client.broker.verification.code = code
    assert await client.add({("t", 0): 5}) == {("t", 0): told}
    assert await client.fetch() == {("t", 0): -1, ("u", 0): -1}


async def test_a_transaction_is_verified_once_in_each_partition() -> None:
    client = Client(start())
    groups, asked = client.broker.groups, client.broker.verification.asked

    async def add_twice() -> int:
        before = len(asked)
        for offset in (5, 6):
            added = await client.add({("t", 0): offset})
            assert added == {("t", 0): ErrorCode.NONE}
        return len(asked) - before

    assert await add_twice() == 1
    assert await add_twice() == 0
    await client.end(is_commit=True)
    assert await add_twice() == 1
    await client.add({("t", 0): 7}, producer_id=8)
    assert len(asked) == 3
    at = partition_for("g", 2)
    groups.on_elected(at, 1)  # markers may have been written elsewhere
    assert await add_twice() == 1
    groups.on_resigned(at)
    groups.on_elected(at, 3)
    assert await add_twice() == 1


async def test_a_verification_that_outlasts_the_leadership_is_not_remembered() -> None:
    client = Client(start())
    groups, verification = client.broker.groups, client.broker.verification
    await groups.wait_loaded()
    at = partition_for("g", 2)
    verification.on_question = lambda: groups.on_resigned(at)
    assert await client.add({("t", 0): 5}) == {("t", 0): ErrorCode.NOT_COORDINATOR}
    verification.on_question = None
    asked = len(verification.asked)
    # Another coordinator may have ended the transaction meanwhile.
    groups.on_elected(at, 3)
    assert await client.add({("t", 0): 5}) == {("t", 0): ErrorCode.NONE}
    assert len(verification.asked) == asked + 1


async def test_a_verification_that_failed_is_repeated() -> None:
    client = Client(start())
    client.broker.verification.code = ErrorCode.CONCURRENT_TRANSACTIONS
    refused = await client.add({("t", 0): 5})
    assert refused == {("t", 0): ErrorCode.CONCURRENT_TRANSACTIONS}
    client.broker.verification.code = ErrorCode.NONE
    assert await client.add({("t", 0): 5}) == {("t", 0): ErrorCode.NONE}


async def test_a_marker_during_the_verification_makes_the_answer_worthless(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The marker may have ended the verified transaction; its offsets would stay pending."""

    broker = start()
    await broker.groups.wait_loaded()
    at = partition_for("g", 2)
    verification = broker.verification
    endings: list[asyncio.Future[None]] = []

    def end() -> None:
        if not endings:
            ending = broker.groups.complete_transaction(at, 7, 3, 1, False, 2)
            endings.append(asyncio.ensure_future(ending))
            verification.on_question = refuse

    def refuse() -> None:
        verification.code = ErrorCode.INVALID_TXN_STATE

    answer = verification.verify

    async def slow(*args: Any, **options: Any) -> dict[TopicPartition, ErrorCode]:
        codes = await answer(*args, **options)
        await asyncio.sleep(0)
        return codes

    monkeypatch.setattr(verification, "verify", slow)
    verification.on_question = end
    client = Client(broker, 5)
    assert await client.add({("t", 0): 5}) == {("t", 0): ErrorCode.INVALID_TXN_STATE}
    await asyncio.gather(*endings)
    assert len(verification.asked) == 2
