"""The records of one node with three directories, as Apache Kafka 4.3.1 wrote them.

Each step's expected batches are those of a recorded run; ids are replaced by the test's own.
"""

from typing import Any

from controller_harness import Harness, uuid

from spindle.common.errors import ErrorCode
from spindle.common.uuids import DIRECTORY_UNASSIGNED
from spindle.metadata.features import SUPPORTED_FEATURES
from spindle.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from spindle.protocol.messages.controller_registration import ControllerRegistrationRequest
from spindle.protocol.messages.create_partitions import CreatePartitionsRequest
from spindle.protocol.messages.create_topics import CreateTopicsRequest
from spindle.protocol.messages.delete_topics import DeleteTopicsRequest
from spindle.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from spindle.protocol.messages.metadata_records import (
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveTopicRecord,
    TopicRecord,
)

D1, D2, D3 = uuid(1), uuid(2), uuid(3)
TOPIC = CreateTopicsRequest.CreatableTopic


def partition(topic_id: bytes, index: int) -> PartitionRecord:
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=[1],
        isr=[1],
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
        directories=[DIRECTORY_UNASSIGNED],
    )


def create(name: str, partitions: int, **more: Any) -> CreateTopicsRequest:
    more.setdefault("replication_factor", 1)
    topic = TOPIC(name=name, num_partitions=partitions, **more)
    return CreateTopicsRequest(topics=[topic])


async def test_bootstrap_is_one_batch_inside_a_metadata_transaction() -> None:
    node = Harness()
    node.quorum.become_leader(1, 1)
    level = FeatureLevelRecord
    assert node.records() == [
        [
            BeginTransactionRecord(name="Bootstrap records"),
            level(name="metadata.version", feature_level=30),
            level(name="eligible.leader.replicas.version", feature_level=1),
            level(name="group.version", feature_level=1),
            level(name="share.version", feature_level=1),
            level(name="streams.version", feature_level=1),
            level(name="transaction.version", feature_level=2),
            ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="1"),
            EndTransactionRecord(),
        ]
    ]
    assert node.quorum.batches[1].base_offset == 1
    node.quorum.commit()
    assert node.publisher.image.metadata_version == 30
    assert node.publisher.image.features.is_elr_enabled


async def test_bootstrap_at_4_0_has_no_elr_and_no_default_min_isr() -> None:
    node = Harness(metadata_version=25)
    node.quorum.become_leader(1, 1)
    assert node.records() == [
        [
            BeginTransactionRecord(name="Bootstrap records"),
            FeatureLevelRecord(name="metadata.version", feature_level=25),
            FeatureLevelRecord(name="group.version", feature_level=1),
            FeatureLevelRecord(name="transaction.version", feature_level=2),
            EndTransactionRecord(),
        ]
    ]


async def test_registration_then_cordoned_list_then_unfencing() -> None:
    node = Harness()
    node.quorum.become_leader(1, 1)
    await node.request(
        ControllerRegistrationRequest(
            controller_id=1,
            incarnation_id=uuid(9),
            features=[
                ControllerRegistrationRequest.Feature(
                    name=name, min_supported_version=0, max_supported_version=30
                )
                for name in SUPPORTED_FEATURES
            ],
        ),
    )
    assert isinstance(node.records()[1][0], RegisterControllerRecord)
    response = await node.register(1, 50, [D1, D2, D3])
    assert response.broker_epoch == 11
    (record,) = node.records()[2]
    assert isinstance(record, RegisterBrokerRecord)
    assert (record.broker_epoch, record.fenced) == (11, True)
    assert record.log_dirs == [D1, D2, D3]
    assert record.cordoned_log_dirs is None

    early = await node.heartbeat(
        1, 11, current_metadata_offset=10, want_fence=True, cordoned_log_dirs=None
    )
    assert (early.is_caught_up, early.is_fenced) == (False, True)
    assert len(node.records()) == 3
    caught_up = await node.heartbeat(1, 11, want_fence=True)
    assert (caught_up.is_caught_up, caught_up.is_fenced) == (True, True)
    ready = await node.heartbeat(1, 11)
    assert not ready.is_fenced
    assert node.records()[3:] == [
        [BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=11, cordoned_log_dirs=[])],
        [BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=11, fenced=-1)],
    ]


async def _started() -> tuple[Harness, int]:
    node = Harness()
    node.quorum.become_leader(1, 1)
    return node, await node.broker(1, [D1, D2, D3])


async def test_topic_records_stand_in_one_batch_configs_before_partitions() -> None:
    node, _ = await _started()
    done = len(node.quorum.batches)
    answer = await node.request(create("six", 6))
    (six,) = answer.topics
    assert (six.error_code, six.num_partitions, six.replication_factor) == (0, 6, 1)
    configs = [
        TOPIC.CreatableTopicConfig(name="cleanup.policy", value="compact"),
        TOPIC.CreatableTopicConfig(name="min.insync.replicas", value="1"),
    ]
    answer = await node.request(create("cfg", 1, configs=configs))
    (cfg,) = answer.topics
    by_hand = [
        TOPIC.CreatableReplicaAssignment(partition_index=index, broker_ids=[1]) for index in (0, 1)
    ]
    request = create("man", -1, replication_factor=-1, assignments=by_hand)
    (man,) = (await node.request(request)).topics
    assert node.records(done) == [
        [
            TopicRecord(name="six", topic_id=six.topic_id),
            *[partition(six.topic_id, index) for index in range(6)],
        ],
        [
            TopicRecord(name="cfg", topic_id=cfg.topic_id),
            ConfigRecord(
                resource_type=2, resource_name="cfg", name="cleanup.policy", value="compact"
            ),
            ConfigRecord(
                resource_type=2, resource_name="cfg", name="min.insync.replicas", value="1"
            ),
            ClearElrRecord(topic_name="cfg"),
            partition(cfg.topic_id, 0),
        ],
        [
            TopicRecord(name="man", topic_id=man.topic_id),
            partition(man.topic_id, 0),
            partition(man.topic_id, 1),
        ],
    ]


async def test_refused_topics_write_nothing_and_say_why() -> None:
    node, _ = await _started()
    await node.request(create("six", 1))
    await node.request(create("a.b", 1))
    done = len(node.quorum.batches)
    manual = TOPIC.CreatableReplicaAssignment
    cases = [
        (
            create("six", 1),
            ErrorCode.TOPIC_ALREADY_EXISTS,
            "Topic 'six' already exists.",
        ),
        (
            create("x", -1, replication_factor=2),
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Unable to replicate the partition 2 time(s): The target replication factor of 2 "
            "cannot be reached because only 1 broker(s) are registered or some brokers have "
            "all their log directories cordoned.",
        ),
        (
            create("x", -1, replication_factor=-1, assignments=[manual(broker_ids=[9])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes broker 9, but no such broker is registered.",
        ),
        (
            create("x y", 1),
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            "Topic name is invalid: 'x y' contains one or more characters other than ASCII "
            "alphanumerics, '.', '_' and '-'",
        ),
        (
            create("a_b", 1),
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            "Topic 'a_b' collides with existing topic: a.b",
        ),
    ]
    for request, code, text in cases:
        (created,) = (await node.request(request)).topics
        assert (created.error_code, created.error_message) == (code, text)
    assert node.records(done) == []


async def test_directories_are_recorded_in_the_order_of_the_request() -> None:
    node, epoch = await _started()
    (six,) = (await node.request(create("six", 3))).topics
    done = len(node.quorum.batches)
    data = AssignReplicasToDirsRequest.DirectoryData
    request = AssignReplicasToDirsRequest(
        broker_id=1,
        broker_epoch=epoch,
        directories=[
            data(
                id=directory,
                topics=[
                    data.TopicData(
                        topic_id=six.topic_id,
                        partitions=[data.TopicData.PartitionData(partition_index=index)],
                    )
                ],
            )
            for directory, index in ((D2, 2), (D1, 1), (D3, 0))
        ],
    )
    await node.request(request)
    change = PartitionChangeRecord
    assert node.records(done) == [
        [
            change(partition_id=2, topic_id=six.topic_id, directories=[D2]),
            change(partition_id=1, topic_id=six.topic_id, directories=[D1]),
            change(partition_id=0, topic_id=six.topic_id, directories=[D3]),
        ]
    ]
    await node.request(request)
    assert len(node.records(done)) == 1, "what is known already is not written again"


async def test_more_partitions_and_deletion() -> None:
    node, _ = await _started()
    (six,) = (await node.request(create("six", 6))).topics
    done = len(node.quorum.batches)
    grow = CreatePartitionsRequest.CreatePartitionsTopic

    def request(count: int) -> CreatePartitionsRequest:
        return CreatePartitionsRequest(topics=[grow(name="six", count=count, assignments=None)])

    await node.request(request(8))
    (refused,) = (await node.request(request(4))).results
    assert refused.error_code == ErrorCode.INVALID_PARTITIONS
    assert refused.error_message == (
        "The topic six currently has 8 partition(s); 4 would not be an increase."
    )
    state = DeleteTopicsRequest.DeleteTopicState
    (deleted,) = (await node.request(DeleteTopicsRequest(topics=[state(name="six")]))).responses
    assert (deleted.error_code, deleted.topic_id) == (0, six.topic_id)
    assert node.records(done) == [
        [partition(six.topic_id, 6), partition(six.topic_id, 7)],
        [RemoveTopicRecord(topic_id=six.topic_id)],
    ]
    (again,) = (
        await node.request(DeleteTopicsRequest(topics=[state(topic_id=six.topic_id)]))
    ).responses
    assert again.error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_config_changes_are_single_records_and_null_removes() -> None:
    node, _ = await _started()
    await node.request(create("six", 1))
    done = len(node.quorum.batches)
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource

    async def alter(kind: int, name: str, key: str, value: str | None) -> int:
        operation = 1 if value is None else 0
        config = resource.AlterableConfig(name=key, config_operation=operation, value=value)
        answer = await node.request(
            IncrementalAlterConfigsRequest(
                resources=[resource(resource_type=kind, resource_name=name, configs=[config])]
            ),
        )
        code: int = answer.responses[0].error_code
        return code

    assert await alter(2, "six", "retention.ms", "5000000") == 0
    assert await alter(4, "1", "log.cleaner.threads", "2") == 0
    assert await alter(4, "", "log.retention.ms", "700000000") == 0
    assert await alter(2, "six", "retention.ms", None) == 0
    assert await alter(2, "nope", "retention.ms", "1") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    record = ConfigRecord
    assert node.records(done) == [
        [record(resource_type=2, resource_name="six", name="retention.ms", value="5000000")],
        [record(resource_type=4, resource_name="1", name="log.cleaner.threads", value="2")],
        [record(resource_type=4, resource_name="", name="log.retention.ms", value="700000000")],
        [record(resource_type=2, resource_name="six", name="retention.ms", value=None)],
    ]
    assert node.publisher.image.configs.topic("six") == {}


def _leaderless(topic_id: bytes) -> PartitionChangeRecord:
    return PartitionChangeRecord(
        partition_id=0,
        topic_id=topic_id,
        isr=[],
        leader=-1,
        eligible_leader_replicas=[1],
        last_known_elr=[1],
    )


async def test_clean_stop_and_start_restore_the_isr_from_the_elr() -> None:
    node, epoch = await _started()
    (six,) = (await node.request(create("six", 1))).topics
    done = len(node.quorum.batches)
    first = await node.heartbeat(1, epoch, want_shut_down=True)
    assert not first.should_shut_down
    last = await node.heartbeat(1, epoch, want_shut_down=True)
    assert (last.should_shut_down, last.is_fenced) == (True, True)
    change = BrokerRegistrationChangeRecord
    assert node.records(done) == [
        [
            change(broker_id=1, broker_epoch=epoch, in_controlled_shutdown=1),
            _leaderless(six.topic_id),
        ],
        [change(broker_id=1, broker_epoch=epoch, fenced=1)],
    ]
    node.quorum.become_leader(1, 2)
    done = len(node.quorum.batches)
    again = await node.register(1, 51, [D1, D2, D3], previous_broker_epoch=epoch)
    await node.heartbeat(1, again.broker_epoch)
    assert node.records(done)[1:] == [
        [
            change(broker_id=1, broker_epoch=again.broker_epoch, fenced=-1),
            PartitionChangeRecord(
                partition_id=0,
                topic_id=six.topic_id,
                isr=[1],
                leader=1,
                eligible_leader_replicas=[],
                last_known_elr=[],
            ),
            change(broker_id=1, broker_epoch=again.broker_epoch, cordoned_log_dirs=[]),
        ]
    ]


async def test_a_kill_clears_the_elr_and_the_last_known_leader_comes_back_recovering() -> None:
    node, epoch = await _started()
    (six,) = (await node.request(create("six", 1))).topics
    node.quorum.become_leader(1, 2)
    refused = await node.register(1, 52, [D1, D2, D3])
    assert refused.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    done = len(node.quorum.batches)
    node.pass_time(10_500)
    change = BrokerRegistrationChangeRecord
    assert node.records(done) == [
        [_leaderless(six.topic_id), change(broker_id=1, broker_epoch=epoch, fenced=1)]
    ]
    done = len(node.quorum.batches)
    again = await node.register(1, 52, [D1, D2, D3])
    (clean_up, registered) = node.records(done)[0]
    assert clean_up == PartitionChangeRecord(
        partition_id=0, topic_id=six.topic_id, eligible_leader_replicas=[]
    )
    assert isinstance(registered, RegisterBrokerRecord)
    assert registered.broker_epoch == node.quorum.batches[done].base_offset
    await node.heartbeat(1, again.broker_epoch)
    assert node.records(done)[1:] == [
        [
            change(broker_id=1, broker_epoch=again.broker_epoch, fenced=-1),
            PartitionChangeRecord(
                partition_id=0,
                topic_id=six.topic_id,
                isr=[1],
                leader=1,
                leader_recovery_state=1,
                last_known_elr=[],
            ),
            change(broker_id=1, broker_epoch=again.broker_epoch, cordoned_log_dirs=[]),
        ]
    ]
