"""Every record type that Kafka has: log -> image -> snapshot -> image, and what it does there."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from metadata_history import image_of, through_the_log, uuid

from spindle.common.errors import UnsupportedMetadata
from spindle.metadata.client_quotas import quota_entity
from spindle.metadata.configs import ConfigResource
from spindle.metadata.image import MetadataImage
from spindle.metadata.security import (
    AccessControlEntry,
    DelegationToken,
    ScramUser,
)
from spindle.metadata.snapshot import snapshot_records
from spindle.metadata_log.committed import CommittedBatch
from spindle.protocol.message import Message
from spindle.protocol.messages.metadata_records import (
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UnregisterControllerRecord,
    UserScramCredentialRecord,
    ZkMigrationStateRecord,
)
from spindle.protocol.metadata_frame import RECORD_TYPES, parse_frame
from spindle.publication.loader import MetadataLoader
from spindle.security.scram import ScramCredential

T = uuid(1)
LEVEL = FeatureLevelRecord(name="metadata.version", feature_level=30)
BROKER = RegisterBrokerRecord(
    broker_id=3,
    incarnation_id=uuid(30),
    broker_epoch=9,
    end_points=[
        RegisterBrokerRecord.BrokerEndpoint(name="SSL", host="h", port=65535, security_protocol=1)
    ],
    features=[
        RegisterBrokerRecord.BrokerFeature(
            name="metadata.version", min_supported_version=7, max_supported_version=30
        )
    ],
    rack="r",
    fenced=False,
    in_controlled_shutdown=True,
    log_dirs=[uuid(31), uuid(32)],
    cordoned_log_dirs=[uuid(32)],
)
TOPIC = TopicRecord(name="t", topic_id=T)
PARTITION = PartitionRecord(
    partition_id=0,
    topic_id=T,
    replicas=[1, 2, 3],
    isr=[],
    removing_replicas=[1],
    adding_replicas=[3],
    leader=-1,
    leader_recovery_state=1,
    leader_epoch=4,
    partition_epoch=5,
    directories=[uuid(11), uuid(21), uuid(31)],
    eligible_leader_replicas=[2],
    last_known_elr=[1],
)
ACL = AccessControlEntryRecord(
    id=uuid(70),
    resource_type=2,
    resource_name="t",
    pattern_type=4,
    principal="User:a",
    host="*",
    operation=3,
    permission_type=3,
)
SCRAM = UserScramCredentialRecord(
    name="a", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096
)
TOKEN = DelegationTokenRecord(
    owner="User:o",
    requester="User:r",
    renewers=["User:x"],
    issue_timestamp=1,
    max_timestamp=3,
    expiration_timestamp=2,
    token_id="id",
)
QUOTA = ClientQuotaRecord(
    entity=[
        ClientQuotaRecord.EntityData(entity_type="user", entity_name=None),
        ClientQuotaRecord.EntityData(entity_type="client-id", entity_name="c"),
    ],
    key="producer_byte_rate",
    value=1024.5,
    remove=False,
)
CONTROLLER = RegisterControllerRecord(
    controller_id=8,
    incarnation_id=uuid(80),
    zk_migration_ready=False,
    end_points=[
        RegisterControllerRecord.ControllerEndpoint(
            name="CONTROLLER", host="h", port=1, security_protocol=0
        )
    ],
    features=[
        RegisterControllerRecord.ControllerFeature(
            name="kraft.version", min_supported_version=0, max_supported_version=1
        )
    ],
)
PRODUCER_IDS = ProducerIdsRecord(broker_id=3, broker_epoch=9, next_producer_id=2000)
CONFIG = ConfigRecord(resource_type=16, resource_name="metrics", name="any.name", value="any value")


class Case(NamedTuple):
    """The last of the records is the one of the type; `look` gives what it is about."""

    records: list[Message]
    look: Callable[[MetadataImage], Any]
    expected: Any


def broker(image: MetadataImage) -> Any:
    broker = image.cluster.brokers.get(3)
    return broker and (broker.is_fenced, broker.is_in_controlled_shutdown, broker.directories)


def partition(image: MetadataImage) -> Any:
    partition = image.topics.partition(T, 0)
    return partition and (
        partition.isr,
        partition.leader,
        partition.leader_epoch,
        partition.elr,
        partition.last_known_elr,
    )


def change(**fields: Any) -> BrokerRegistrationChangeRecord:
    return BrokerRegistrationChangeRecord(broker_id=3, broker_epoch=9, **fields)


DIRECTORIES = (uuid(31), uuid(32))
CASES = [
    Case([LEVEL], lambda i: i.metadata_version, 30),
    Case([LEVEL, BROKER], broker, (False, True, DIRECTORIES)),
    Case([LEVEL, BROKER, UnregisterBrokerRecord(broker_id=3, broker_epoch=9)], broker, None),
    Case([LEVEL, BROKER, FenceBrokerRecord(id=3, epoch=9)], broker, (True, True, DIRECTORIES)),
    Case(
        [LEVEL, BROKER, FenceBrokerRecord(id=3, epoch=9), UnfenceBrokerRecord(id=3, epoch=9)],
        broker,
        (False, True, DIRECTORIES),
    ),
    Case(
        [LEVEL, BROKER, change(fenced=1, log_dirs=[uuid(31)], cordoned_log_dirs=[])],
        lambda i: (broker(i), i.cluster.brokers[3].cordoned_directories),
        ((True, True, (uuid(31),)), ()),
    ),
    Case([LEVEL, TOPIC], lambda i: i.topics.by_name["t"].topic_id, T),
    Case([LEVEL, TOPIC, PARTITION], partition, ((), -1, 4, (2,), (1,))),
    Case(
        [
            LEVEL,
            TOPIC,
            PARTITION,
            PartitionChangeRecord(
                partition_id=0, topic_id=T, isr=[2], leader=2, eligible_leader_replicas=[3]
            ),
        ],
        partition,
        ((2,), 2, 5, (3,), (1,)),
    ),
    Case([LEVEL, TOPIC, PARTITION, ClearElrRecord(topic_name="t")], partition, ((), -1, 4, (), ())),
    Case(
        [LEVEL, TOPIC, PARTITION, RemoveTopicRecord(topic_id=T)],
        lambda i: (dict(i.topics.by_id), dict(i.topics.by_name)),
        ({}, {}),
    ),
    Case(
        [LEVEL, CONFIG],
        lambda i: i.configs.of(ConfigResource(16, "metrics")),
        {"any.name": "any value"},
    ),
    Case(
        [LEVEL, QUOTA],
        lambda i: i.client_quotas.by_entity,
        {quota_entity([("user", None), ("client-id", "c")]): {"producer_byte_rate": 1024.5}},
    ),
    Case([LEVEL, PRODUCER_IDS], lambda i: i.producer_ids.next_producer_id, 2000),
    Case(
        [LEVEL, ACL],
        lambda i: i.security.acls,
        {uuid(70): AccessControlEntry(2, "t", 4, "User:a", "*", 3, 3)},
    ),
    Case([LEVEL, ACL, RemoveAccessControlEntryRecord(id=uuid(70))], lambda i: i.security.acls, {}),
    Case(
        [LEVEL, SCRAM],
        lambda i: i.security.scram,
        {ScramUser("a", 1): ScramCredential(b"s", b"k", b"v", 4096)},
    ),
    Case(
        [LEVEL, SCRAM, RemoveUserScramCredentialRecord(name="a", mechanism=1)],
        lambda i: i.security.scram,
        {},
    ),
    Case(
        [LEVEL, TOKEN],
        lambda i: i.security.delegation_tokens,
        {"id": DelegationToken("User:o", "User:r", ("User:x",), 1, 3, 2)},
    ),
    Case(
        [LEVEL, TOKEN, RemoveDelegationTokenRecord(token_id="id")],
        lambda i: i.security.delegation_tokens,
        {},
    ),
    Case(
        [LEVEL, CONTROLLER],
        lambda i: [(c.controller_id, c.endpoints[0].port) for c in i.cluster.controllers.values()],
        [(8, 1)],
    ),
    Case(
        [LEVEL, CONTROLLER, UnregisterControllerRecord(controller_id=8)],
        lambda i: i.cluster.controllers,
        {},
    ),
    Case([LEVEL, NoOpRecord()], lambda i: i.metadata_version, 30),
    Case([LEVEL, ZkMigrationStateRecord(zk_migration_state=3)], lambda i: i.metadata_version, 30),
]
MARKERS = (BeginTransactionRecord, EndTransactionRecord, AbortTransactionRecord)


def test_there_is_a_case_for_every_type() -> None:
    covered = {type(case.records[-1]) for case in CASES} | set(MARKERS)
    assert covered == set(RECORD_TYPES.values())


@pytest.mark.parametrize("case", CASES, ids=lambda case: type(case.records[-1]).__name__)
def test_log_image_snapshot_image(case: Case) -> None:
    image = image_of([through_the_log(record) for record in case.records])
    assert case.look(image) == case.expected
    again = image_of([through_the_log(record) for record in snapshot_records(image)])
    assert case.look(again) == case.expected
    assert (again.features, again.cluster, again.topics) == (
        image.features,
        image.cluster,
        image.topics,
    )
    assert (again.configs, again.client_quotas, again.security) == (
        image.configs,
        image.client_quotas,
        image.security,
    )


@pytest.mark.parametrize(
    ("end", "expected"),
    [(EndTransactionRecord(), {"topic"}), (AbortTransactionRecord(reason="r"), set())],
    ids=["end", "abort"],
)
def test_metadata_transaction_records_survive_the_log(end: Message, expected: set[str]) -> None:
    topic = TopicRecord(name="topic", topic_id=T)
    written = [LEVEL, BeginTransactionRecord(name="n"), topic, end]
    records = [through_the_log(record) for record in written]
    loader = MetadataLoader()
    loader.load_batches([CommittedBatch(0, len(records) - 1, 1, 0, 100, records)])
    assert set(loader.image.topics.by_name) == expected


@pytest.mark.parametrize("data", [b"\x01\x06\x00", b"\x01\x63\x00\x00", b"\x01\x02\x01\x00"])
def test_records_of_unknown_types_and_versions_are_refused_by_name(data: bytes) -> None:
    with pytest.raises(UnsupportedMetadata, match=r"type (6|99) is unknown|TopicRecord version 1"):
        parse_frame(data)
