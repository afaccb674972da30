"""Requests of clients and brokers, derived from Kafka's metadata logs and sent to our controller.

From each record follows the request that must have caused it. Our decision on the image before must
give the same records, in the same order. Events of brokers are tested in `test_recorded_clusters`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from controller_harness import AnyConfig, operation_context
from recorded_log import Recorded, recorded

from spindle.common.errors import ApiError
from spindle.common.ids import NO_LEADER
from spindle.controller.decision import (
    ControllerContext,
    ControllerSettings,
)
from spindle.controller.operations import OPERATIONS
from spindle.metadata.features import SUPPORTED_FEATURES
from spindle.metadata.image import MetadataImage
from spindle.protocol.message import Message
from spindle.protocol.messages.alter_partition import AlterPartitionRequest
from spindle.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
)
from spindle.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from spindle.protocol.messages.broker_registration import BrokerRegistrationRequest
from spindle.protocol.messages.create_partitions import CreatePartitionsRequest
from spindle.protocol.messages.create_topics import CreateTopicsRequest
from spindle.protocol.messages.delete_topics import DeleteTopicsRequest
from spindle.protocol.messages.elect_leaders import ElectLeadersRequest
from spindle.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from spindle.protocol.messages.metadata_records import (
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from spindle.protocol.messages.update_features import UpdateFeaturesRequest

CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS, ELECT = 19, 20, 37, 43
ALTER_CONFIGS, REASSIGN, ALTER_PARTITION, UPDATE_FEATURES = 44, 45, 56, 57
REGISTER, ASSIGN_DIRECTORIES = 62, 73
SET, DELETE = 0, 1
UPGRADE, SAFE_DOWNGRADE = 1, 2

Request = tuple[int, Message]


def decide(image: MetadataImage, request: Request, topic_id: bytes = b"", at: int = 0) -> Any:
    """Return the records of our decision; none where it is refused."""
    settings = ControllerSettings(node_id=99, cluster_id="recorded")
    context = ControllerContext(settings, AnyConfig(), lambda: topic_id, Random(1))
    key, message = request
    given = replace(operation_context(image, context, at), api_version=message.LAST_VERSION)
    try:
        return OPERATIONS[key](given, message).records
    except ApiError:
        return []


def asked_once(records: list[Any], image: MetadataImage) -> tuple[int, list[Request]]:
    """Return how many of the records come from one request, and the requests that may have caused
    them."""
    first = records[0]
    match first:
        case TopicRecord():
            of_topic = [r for r in records if is_of(r, first)]
            return len(of_topic), [created(of_topic)]
        case PartitionRecord():
            added = [r for r in records if r.topic_id == first.topic_id]
            return len(added), [grown(added, image)]
        case RemoveTopicRecord():
            state = DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=first.topic_id)
            return 1, [(DELETE_TOPICS, DeleteTopicsRequest(topics=[state]))]
        case ConfigRecord():
            resource = (first.resource_type, first.resource_name)
            same = [
                r
                for r in records
                if isinstance(r, ConfigRecord) and (r.resource_type, r.resource_name) == resource
            ]
            count = len(same)
            is_elr_cleared = len(records) > count and isinstance(records[count], ClearElrRecord)
            return count + is_elr_cleared, [configured(same)]
        case FeatureLevelRecord():
            levels = [r for r in records if isinstance(r, FeatureLevelRecord)]
            return len(levels), [features(levels, image)]
        case RegisterBrokerRecord():
            return 1, [registration(first)]
        case PartitionChangeRecord():
            return 1, list(changes(first, image))
    raise AssertionError(first)


def is_of(record: Any, topic: TopicRecord) -> bool:
    if isinstance(record, TopicRecord | PartitionRecord):
        return bool(record.topic_id == topic.topic_id)
    if isinstance(record, ConfigRecord):
        return bool(record.resource_name == topic.name)
    return isinstance(record, ClearElrRecord) and record.topic_name == topic.name


def created(records: list[Any]) -> Request:
    topic = CreateTopicsRequest.CreatableTopic
    made = topic(
        name=records[0].name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            topic.CreatableReplicaAssignment(
                partition_index=r.partition_id, broker_ids=list(r.replicas)
            )
            for r in records
            if isinstance(r, PartitionRecord)
        ],
        configs=[
            topic.CreatableTopicConfig(name=r.name, value=r.value)
            for r in records
            if isinstance(r, ConfigRecord)
        ],
    )
    return CREATE_TOPICS, CreateTopicsRequest(topics=[made])


def grown(records: list[PartitionRecord], image: MetadataImage) -> Request:
    topic = image.topics.by_id[bytes(records[0].topic_id)]
    grow = CreatePartitionsRequest.CreatePartitionsTopic
    more = grow(
        name=topic.name,
        count=len(topic.partitions) + len(records),
        assignments=[grow.CreatePartitionsAssignment(broker_ids=list(r.replicas)) for r in records],
    )
    return CREATE_PARTITIONS, CreatePartitionsRequest(topics=[more])


def configured(records: list[ConfigRecord]) -> Request:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    configs = [
        resource.AlterableConfig(
            name=r.name, value=r.value, config_operation=DELETE if r.value is None else SET
        )
        for r in records
    ]
    asked = resource(
        resource_type=records[0].resource_type,
        resource_name=records[0].resource_name,
        configs=configs,
    )
    return ALTER_CONFIGS, IncrementalAlterConfigsRequest(resources=[asked])


def features(records: list[FeatureLevelRecord], image: MetadataImage) -> Request:
    updates = [
        UpdateFeaturesRequest.FeatureUpdateKey(
            feature=r.name,
            max_version_level=r.feature_level,
            upgrade_type=(
                UPGRADE
                if r.feature_level >= image.features.levels.get(r.name, 0)
                else SAFE_DOWNGRADE
            ),
        )
        for r in records
    ]
    return UPDATE_FEATURES, UpdateFeaturesRequest(feature_updates=updates)


def registration(record: RegisterBrokerRecord) -> Request:
    request = BrokerRegistrationRequest
    features = [
        request.Feature(
            name=name,
            min_supported_version=levels.minimum,
            max_supported_version=levels.maximum,
        )
        for name, levels in SUPPORTED_FEATURES.items()
    ]
    return REGISTER, request(
        broker_id=record.broker_id,
        cluster_id="recorded",
        incarnation_id=record.incarnation_id,
        listeners=[
            request.Listener(
                name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol
            )
            for e in record.end_points
        ],
        features=features,
        rack=record.rack,
        log_dirs=list(record.log_dirs),
    )


def changes(record: PartitionChangeRecord, image: MetadataImage) -> Iterator[Request]:
    """Yield everything that can change a partition: its brokers, its leader, an operator."""
    topic = image.topics.by_id[bytes(record.topic_id)]
    index = record.partition_id
    old = topic.partitions[index]
    if record.directories is not None:
        for broker_id, before, after in zip(
            old.replicas, old.directories, record.directories, strict=False
        ):
            if before != after:
                yield ASSIGN_DIRECTORIES, assigned(image, broker_id, after, record)
    removing = record.removing_replicas or ()
    target = [r for r in record.replicas or old.replicas if r not in removing]
    for replicas in (target, None):
        reassign = AlterPartitionReassignmentsRequest.ReassignableTopic
        asked = reassign.ReassignablePartition(partition_index=index, replicas=replicas)
        yield (
            REASSIGN,
            AlterPartitionReassignmentsRequest(
                topics=[reassign(name=topic.name, partitions=[asked])]
            ),
        )
    if old.leader != NO_LEADER:
        isr = record.isr if record.isr is not None else list(old.isr)
        for proposed in (isr, [*isr, *(r for r in old.isr if r not in isr)]):
            yield ALTER_PARTITION, proposal(image, proposed, record)
    for kind in (0, 1):
        named = ElectLeadersRequest.TopicPartitions(topic=topic.name, partitions=[index])
        yield ELECT, ElectLeadersRequest(election_type=kind, topic_partitions=[named])


def assigned(
    image: MetadataImage, broker_id: int, directory: bytes, record: PartitionChangeRecord
) -> Message:
    directories = AssignReplicasToDirsRequest.DirectoryData
    index = directories.TopicData.PartitionData(partition_index=record.partition_id)
    topic = directories.TopicData(topic_id=record.topic_id, partitions=[index])
    return AssignReplicasToDirsRequest(
        broker_id=broker_id,
        broker_epoch=image.cluster.brokers[broker_id].epoch,
        directories=[directories(id=directory, topics=[topic])],
    )


def proposal(image: MetadataImage, isr: list[int], record: PartitionChangeRecord) -> Message:
    old = image.topics.by_id[bytes(record.topic_id)].partitions[record.partition_id]
    data = AlterPartitionRequest.TopicData.PartitionData
    partition = data(
        partition_index=record.partition_id,
        leader_epoch=old.leader_epoch,
        new_isr_with_epochs=[
            data.BrokerState(broker_id=r, broker_epoch=image.cluster.brokers[r].epoch) for r in isr
        ],
        # After an unclean election, the leader's next proposal counts it as recovered.
        leader_recovery_state=0,
        partition_epoch=old.partition_epoch,
    )
    return AlterPartitionRequest(
        broker_id=old.leader,
        broker_epoch=image.cluster.brokers[old.leader].epoch,
        topics=[AlterPartitionRequest.TopicData(topic_id=record.topic_id, partitions=[partition])],
    )


def belongs_to_a_broker(entry: Recorded) -> bool:
    """Return True if an event of a broker stands beside the partition's change in the batch."""
    following = [r for r in entry.later if not isinstance(r, PartitionChangeRecord)][:1]
    preceding = [r for r, _ in entry.earlier if not isinstance(r, PartitionChangeRecord)][-1:]
    return any(
        isinstance(
            r, BrokerRegistrationChangeRecord | RegisterBrokerRecord | UnregisterBrokerRecord
        )
        for r in following + preceding
    )


def asked_for(run: str) -> Iterator[tuple[Recorded, list[Message], list[Any]]]:
    """Yield (first record, records of one request in the log, what we decide on each candidate)."""
    is_bootstrapped = False
    skip = 0
    for entry in recorded(run):
        record = entry.record
        if skip:
            skip -= 1
            continue
        is_bootstrapped |= isinstance(record, RegisterBrokerRecord)
        if (
            not is_bootstrapped
            or isinstance(record, BrokerRegistrationChangeRecord | UnregisterBrokerRecord)
            or (isinstance(record, PartitionChangeRecord) and belongs_to_a_broker(entry))
        ):
            continue
        rest = [record, *entry.later]
        count, requests = asked_once(rest, entry.before)
        topic_id = bytes(record.topic_id) if isinstance(record, TopicRecord) else b""
        at = record.broker_epoch if isinstance(record, RegisterBrokerRecord) else 0
        ours = [decide(entry.before, request, topic_id, at) for request in requests]
        if isinstance(record, RegisterBrokerRecord):
            # Changes of its partitions are compared elsewhere; features are not recorded.
            ours = [records[-1:] for records in ours]
            ours[0][0].features = record.features
        yield entry, rest[:count], ours
        skip = count - 1


def assigns_cordoned_broker(records: Sequence[Message], before: MetadataImage) -> bool:
    """Return True if a record has a replica on a broker whose directories are all cordoned."""
    return any(
        not before.cluster.brokers[broker_id].has_uncordoned_directory()
        for record in records
        if isinstance(record, PartitionRecord | PartitionChangeRecord)
        for broker_id in record.replicas or ()
    )


@pytest.mark.parametrize(
    ("run", "records"),
    [
        ("all-directories-fail", 44),
        ("cordons", 187),
        ("directory-failure", 76),
        ("features", 33),
        ("fencing", 45),
        ("first-start", 43),
        ("moves", 29),
        ("reassignment", 80),
        ("strays", 52),
    ],
)
def test_requests_lead_to_the_records_of_the_recorded_controller(run: str, records: int) -> None:
    compared = 0
    for entry, theirs, ours in asked_for(run):
        compared += len(theirs)
        if theirs not in ours and assigns_cordoned_broker(theirs, entry.before):
            continue  # refused since Kafka 4.4; the records are those of Kafka 4.3.1
        assert theirs in ours, entry.offset
    assert compared == records
