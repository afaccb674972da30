"""The driver: speculative state, commits, loss of leadership, limits, periodic tasks."""

import asyncio
import logging
from typing import Any

import pytest
from controller_harness import Harness, registration, uuid

from spindle.common.errors import ApiError, ErrorCode
from spindle.controller import topics
from spindle.controller.assignment import check_manual_assignment, usable_brokers
from spindle.metadata.delta import MetadataDelta
from spindle.metadata.features import SUPPORTED_FEATURES
from spindle.metadata.image import MetadataProvenance
from spindle.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from spindle.protocol.messages.broker_registration import BrokerRegistrationRequest
from spindle.protocol.messages.create_partitions import CreatePartitionsRequest
from spindle.protocol.messages.create_topics import CreateTopicsRequest
from spindle.protocol.messages.metadata_records import (
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from spindle.protocol.messages.update_features import UpdateFeaturesRequest
from spindle.runtime.controller import periodic_tasks

TOPIC = CreateTopicsRequest.CreatableTopic


def create(*names: str, partitions: int = 1) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[TOPIC(name=n, num_partitions=partitions, replication_factor=1) for n in names]
    )


async def started() -> Harness:
    node = Harness()
    node.quorum.become_leader(1, 1)
    await node.broker(1, [uuid(1)])
    return node


async def test_the_answer_waits_for_the_commit_and_the_next_request_sees_the_records() -> None:
    node = await started()
    node.quorum.commits_at_once = False
    first = asyncio.create_task(node.request(create("a")))
    second = asyncio.create_task(node.request(create("a")))
    await asyncio.sleep(0)
    assert not first.done()
    assert "a" in node.driver.speculative_image.topics.by_name
    assert "a" not in node.publisher.image.topics.by_name
    node.quorum.commit()
    assert (await first).topics[0].error_code == 0
    assert (await second).topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert node.driver.speculative_image is node.publisher.image


async def test_an_error_that_rests_on_uncommitted_state_waits_for_it_too() -> None:
    node = await started()
    node.quorum.commits_at_once = False
    first = asyncio.create_task(node.request(create("a")))
    second = asyncio.create_task(node.request(create("a")))
    await asyncio.sleep(0)
    assert not second.done(), "'exists' is not yet true"
    node.quorum.lose_leadership(2, 5, keep=0)
    for task in (first, second):
        with pytest.raises(ApiError, match="NOT_CONTROLLER"):
            await task


async def test_a_leader_whose_first_records_fail_makes_room_for_another() -> None:
    contradiction = PartitionRecord(partition_id=0, topic_id=uuid(9), replicas=[1], isr=[1])
    node = Harness(bootstrap=[contradiction])
    node.quorum.become_leader(1, 4)
    assert not node.driver.is_active
    assert node.quorum.resigned == [4]
    with pytest.raises(ApiError, match="NOT_CONTROLLER"):
        await node.request(create("a"))


async def test_a_level_that_was_never_committed_is_not_written_with() -> None:
    node = Harness(metadata_version=20)
    node.quorum.become_leader(1, 1)
    node.quorum.commit()
    node.quorum.commits_at_once = False
    update = UpdateFeaturesRequest.FeatureUpdateKey(
        feature="metadata.version", max_version_level=24, upgrade_type=1
    )
    raised = asyncio.create_task(node.request(UpdateFeaturesRequest(feature_updates=[update])))
    await asyncio.sleep(0)
    node.pass_time(500)
    assert node.quorum.levels[-1] == 24
    node.quorum.lose_leadership(2, 5, keep=0)
    with pytest.raises(ApiError, match="NOT_CONTROLLER"):
        await raised
    node.quorum.become_leader(1, 6)
    node.pass_time(500)
    assert node.quorum.levels[-1] == 20


async def test_losing_leadership_fails_what_waits_and_forgets_it() -> None:
    node = await started()
    node.quorum.commits_at_once = False
    waiting = asyncio.create_task(node.request(create("lost")))
    await asyncio.sleep(0)
    node.quorum.lose_leadership(2, 5, keep=0)
    with pytest.raises(ApiError) as caught:
        await waiting
    assert caught.value.code is ErrorCode.NOT_CONTROLLER
    assert not node.driver.is_active
    assert "lost" not in node.driver.speculative_image.topics.by_name
    with pytest.raises(ApiError, match="node 2"):
        await node.request(create("b"))


async def test_a_controller_that_comes_back_starts_from_what_was_committed() -> None:
    node = await started()
    node.quorum.commits_at_once = False
    kept = asyncio.create_task(node.request(create("kept")))
    lost = asyncio.create_task(node.request(create("lost")))
    await asyncio.sleep(0)
    node.quorum.lose_leadership(2, 5, keep=1)
    for task in (kept, lost):
        with pytest.raises(ApiError, match="NOT_CONTROLLER"):
            await task
    node.quorum.commits_at_once = True
    node.quorum.become_leader(1, 6)
    answer = await node.request(create("kept", "lost"))
    assert [topic.error_code for topic in answer.topics] == [
        ErrorCode.TOPIC_ALREADY_EXISTS,
        0,
    ]


async def test_an_active_controller_says_that_it_does_not_check_acls(
    caplog: pytest.LogCaptureFixture,
) -> None:
    entry = AccessControlEntryRecord(
        id=uuid(5),
        resource_type=2,
        resource_name="t",
        pattern_type=3,
        principal="User:a",
        host="*",
        operation=3,
        permission_type=3,
    )
    node = Harness(bootstrap=[FeatureLevelRecord(name="metadata.version", feature_level=30), entry])
    node.quorum.become_leader(1, 2)
    assert "Controller 1 has no authorizer, but the metadata has 1 ACLs" in caplog.messages


async def test_a_request_times_out_when_nothing_commits() -> None:
    node = await started()
    node.quorum.commits_at_once = False
    request = create("slow")
    request.timeout_ms = 1
    with pytest.raises(ApiError, match="REQUEST_TIMED_OUT"):
        await node.request(request)
    node.quorum.commit()
    assert "slow" in node.publisher.image.topics.by_name, "it happened all the same"


async def test_an_open_transaction_of_the_predecessor_is_aborted() -> None:
    node = await started()
    node.quorum.lose_leadership(2, 5, keep=0)
    node.quorum._add([BeginTransactionRecord(), TopicRecord(name="half", topic_id=uuid(9))], 5)
    node.quorum.commit()
    assert node.publisher.is_in_transaction
    node.quorum.become_leader(1, 6)
    assert node.records()[-1] == [AbortTransactionRecord(reason="Controller failover")]
    node.quorum.commit()
    assert "half" not in node.publisher.image.topics.by_name
    answer = await node.request(create("half"))
    assert answer.topics[0].error_code == 0


async def test_too_many_partitions_in_one_request_are_refused_for_each_topic() -> None:
    node = await started()
    done = len(node.quorum.batches)
    answer = await node.request(create("a", "b", partitions=5001))
    codes = [topic.error_code for topic in answer.topics]
    assert codes == [ErrorCode.POLICY_VIOLATION, ErrorCode.POLICY_VIOLATION]
    assert "10002" in answer.topics[0].error_message
    assert node.records(done) == []


async def test_producer_ids_come_in_blocks_of_a_thousand() -> None:
    node = await started()
    epoch = node.publisher.image.cluster.brokers[1].epoch
    request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=epoch)
    blocks = [await node.request(request) for _ in range(3)]
    assert [b.producer_id_start for b in blocks] == [0, 1000, 2000]
    assert {b.producer_id_len for b in blocks} == {1000}
    stale = AllocateProducerIdsRequest(broker_id=1, broker_epoch=epoch + 1)
    assert (await node.request(stale)).error_code == ErrorCode.STALE_BROKER_EPOCH


async def test_an_idle_controller_writes_a_no_op_record() -> None:
    node = await started()
    done = len(node.quorum.batches)
    node.now_ms += 499
    node.driver.tasks.run_due()
    assert node.quorum.batches[done:] == []
    node.now_ms += 1
    node.driver.tasks.run_due()
    assert [batch.records for batch in node.quorum.batches[done:]] == [[NoOpRecord()]]
    node.driver.tasks.run_due()
    assert len(node.quorum.batches) == done + 1


async def test_an_unexpected_failure_of_a_task_stops_neither_it_nor_the_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    node = await started()
    done = len(node.quorum.batches)

    def fail(*_: object) -> None:
        raise KeyError("a mistake")

    with monkeypatch.context() as broken:
        broken.setattr(periodic_tasks, "fence_stale_broker", fail)
        node.pass_time(10_000)
    assert NoOpRecord() in node.quorum.batches[-1].records
    assert len(node.quorum.batches) > done + 10
    is_fenced = [node.publisher.image.cluster.brokers[1].is_fenced]
    node.pass_time(10_000)
    node.quorum.commit()
    is_fenced.append(node.publisher.image.cluster.brokers[1].is_fenced)
    assert is_fenced == [False, True]
    assert "Controller 1: failed to fence stale brokers" in caplog.messages


async def test_a_broker_that_could_not_be_fenced_is_fenced_later_and_others_before() -> None:
    node = await started()
    await node.broker(2, [uuid(2)])
    node.now_ms += 10
    await node.broker(3, [uuid(3)])
    node.quorum.failure = ValueError("too large")
    node.pass_time(9100)
    node.quorum.failure = None
    node.pass_time(9100)
    node.quorum.commit()
    brokers = node.publisher.image.cluster.brokers
    assert all(brokers[broker_id].is_fenced for broker_id in (1, 2, 3))


async def test_too_many_partitions_over_many_topics_are_refused_before_any_is_placed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = await started()
    names = ["a", "b", "c"]
    await node.request(create(*names))
    monkeypatch.setattr(topics, "place_replicas", None)
    grow = CreatePartitionsRequest.CreatePartitionsTopic
    answer = await node.request(
        CreatePartitionsRequest(topics=[grow(name=n, count=9_000) for n in names])
    )
    assert {result.error_code for result in answer.results} == {ErrorCode.POLICY_VIOLATION}


async def test_a_negative_broker_id_that_another_controller_registered_gets_no_replica() -> None:
    node = await started()
    delta = MetadataDelta(node.publisher.image)
    delta.replay(RegisterBrokerRecord(broker_id=-1, fenced=False), 1)
    image = delta.apply(MetadataProvenance(1, 1, 0))
    assert [broker.broker_id for broker in usable_brokers(image)] == [1]
    with pytest.raises(ApiError, match="broker -1"):
        check_manual_assignment(image, [1, -1], None)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"cluster_id": "other"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"is_migrating_zk_broker": True}, ErrorCode.BROKER_ID_NOT_REGISTERED),
        ({"features": []}, ErrorCode.INVALID_REGISTRATION),
        ({"broker_id": -1}, ErrorCode.INVALID_REGISTRATION),
        ({"broker_id": -(2**31)}, ErrorCode.INVALID_REGISTRATION),
    ],
)
async def test_registrations_that_are_refused(fields: dict[str, Any], code: ErrorCode) -> None:
    node = await started()
    broker_id = fields.pop("broker_id", 2)
    answer = await node.request(registration(broker_id, 7, [uuid(2)], **fields))
    assert (answer.error_code, answer.broker_epoch) == (code, -1)


async def test_nodes_that_do_not_know_the_quorums_version_are_refused() -> None:
    node = await started()
    level = BrokerRegistrationRequest.Feature(
        name="metadata.version", min_supported_version=7, max_supported_version=30
    )
    others = [
        BrokerRegistrationRequest.Feature(
            name=name, min_supported_version=0, max_supported_version=r.maximum
        )
        for name, r in SUPPORTED_FEATURES.items()
        if name not in ("metadata.version", "kraft.version")
    ]
    asked = registration(2, 7, [uuid(2)], features=[level, *others])
    node.quorum.kraft_version = 1
    refused = await node.request(asked)
    assert refused.error_code == ErrorCode.UNSUPPORTED_VERSION
    node.quorum.kraft_version = 0
    assert (await node.request(asked)).error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    "directories",
    [[], [bytes(15) + b"\x01"], [uuid(5), uuid(5)], [uuid(1)]],
    ids=["none", "reserved", "twice", "of broker 1"],
)
async def test_directories_that_are_refused(directories: list[bytes]) -> None:
    node = await started()
    answer = await node.request(registration(2, 7, directories))
    assert answer.error_code == ErrorCode.INVALID_REGISTRATION


async def test_the_same_process_registers_again_with_its_old_epoch() -> None:
    node = await started()
    before = node.publisher.image.cluster.brokers[1]
    again = await node.register(1, 101, [uuid(1), uuid(2)])
    after = node.publisher.image.cluster.brokers[1]
    assert again.broker_epoch == before.epoch
    assert (after.is_fenced, after.directories) == (False, (uuid(1), uuid(2)))


async def test_a_crashed_combined_node_comes_back_without_waiting_for_its_own_session() -> None:
    node = await started()
    await node.broker(2, [uuid(2)])
    before = node.publisher.image.cluster.brokers[1]
    node.quorum.become_leader(1, 2)
    own = registration(1, 555, [uuid(1)])
    from_outside = await node.request(own)
    assert from_outside.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    other = registration(2, 556, [uuid(2)])
    answer: Any = await node.driver.handle(other)
    assert answer.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    answer = await node.driver.handle(own)
    assert answer.error_code == 0
    after = node.publisher.image.cluster.brokers[1]
    assert after.epoch > before.epoch
    assert after.is_fenced
    node.pass_time(10_500)
    last: Any = node.records()[-1][-1]
    assert last.broker_id == 2, "the dead session of 1 fences nobody"


async def test_an_empty_log_without_bootstrap_records_starts_at_the_newest_level() -> None:
    node = Harness(bootstrap=())
    node.quorum.become_leader(1, 1)
    node.quorum.commit()
    assert node.publisher.image.features.levels == {"metadata.version": 33}


async def test_the_reason_of_a_refused_registration_is_logged_once_for_each_process(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A broker asks twice a second while the session of its killed process lasts."""

    root = logging.getLogger("spindle")
    root.addHandler(caplog.handler)
    try:
        node = await started()
        await node.broker(2, [uuid(2)])
        for incarnation in (555, 555, 555, 556):
            answer = await node.request(registration(2, incarnation, [uuid(2)]))
            assert answer.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    finally:
        root.removeHandler(caplog.handler)
    told = [r for r in caplog.records if "broker 2 was not registered" in r.getMessage()]
    assert len({id(record) for record in told}) == 2
