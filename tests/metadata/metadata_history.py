"""Random but valid histories of metadata records, for properties that hold for all of them."""

from random import Random

from spindle.common.uuids import DIRECTORY_UNASSIGNED, Uuid
from spindle.metadata.delta import MetadataDelta
from spindle.metadata.image import EMPTY_IMAGE, MetadataImage, MetadataProvenance
from spindle.metadata.record_versions import record_version
from spindle.protocol.message import Message
from spindle.protocol.messages.metadata_records import (
    AccessControlEntryRecord,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from spindle.protocol.metadata_frame import frame, parse_frame


def uuid(number: int) -> Uuid:
    """Return a recognisable id that is not reserved."""
    return number.to_bytes(8, "big") + bytes(8)


def through_the_log(record: Message, metadata_version: int = 30) -> Message:
    """Return the record as a reader of the log gets it."""
    return parse_frame(frame(record, record_version(record, metadata_version)))[0]


def image_of(records: list[Message], base: MetadataImage = EMPTY_IMAGE) -> MetadataImage:
    """All records replayed in one delta."""
    delta = MetadataDelta(base)
    offset = base.provenance.last_offset
    for record in records:
        offset += 1
        delta.replay(record, offset)
    return delta.apply(MetadataProvenance(offset, 1, 0))


def history(seed: int, length: int) -> list[Message]:
    """Return records in an order in which a controller could have written them."""
    random = Random(seed)
    records: list[Message] = [FeatureLevelRecord(name="metadata.version", feature_level=30)]
    topics: dict[Uuid, tuple[str, int]] = {}
    epochs: dict[int, int] = {}
    for step in range(length):
        kind = random.randrange(12)
        if kind == 0 or not epochs:
            broker_id = random.randrange(1, 5)
            epochs[broker_id] = step
            records.append(
                RegisterBrokerRecord(
                    broker_id=broker_id,
                    incarnation_id=uuid(step + 1),
                    broker_epoch=step,
                    end_points=[
                        RegisterBrokerRecord.BrokerEndpoint(name="PLAINTEXT", host="h", port=step)
                    ],
                    features=[
                        RegisterBrokerRecord.BrokerFeature(
                            name="metadata.version",
                            min_supported_version=7,
                            max_supported_version=30,
                        )
                    ],
                    rack=random.choice((None, "r1")),
                    log_dirs=sorted(uuid(broker_id * 100 + n) for n in range(2)),
                )
            )
        elif kind == 1:
            broker_id = random.choice(list(epochs))
            records.append(
                BrokerRegistrationChangeRecord(
                    broker_id=broker_id,
                    broker_epoch=epochs[broker_id],
                    fenced=random.choice((-1, 0, 1)),
                    cordoned_log_dirs=random.choice((None, [], [uuid(broker_id * 100)])),
                )
            )
        elif kind in (2, 3) or not topics:
            topic_id, name = uuid(50_000 + step), f"topic-{step}"
            count = random.randrange(1, 4)
            topics[topic_id] = (name, count)
            records.append(TopicRecord(name=name, topic_id=topic_id))
            records += [_partition(topic_id, index) for index in range(count)]
        elif kind in (4, 5, 6):
            topic_id = random.choice(list(topics))
            records.append(_change(random, topic_id, random.randrange(topics[topic_id][1])))
        elif kind == 7:
            topic_id = random.choice(list(topics))
            del topics[topic_id]
            records.append(RemoveTopicRecord(topic_id=topic_id))
        elif kind == 8:
            topic_name, _ = topics[random.choice(list(topics))]
            records.append(
                ConfigRecord(
                    resource_type=2,
                    resource_name=topic_name,
                    name=random.choice(("retention.ms", "segment.bytes")),
                    value=random.choice((None, "1", "2")),
                )
            )
        else:
            records.append(_other(random, step))
    return records


def _partition(topic_id: Uuid, index: int) -> PartitionRecord:
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=[1, 2],
        isr=[1, 2],
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
        directories=[DIRECTORY_UNASSIGNED] * 2,
    )


def _change(random: Random, topic_id: Uuid, index: int) -> PartitionChangeRecord:
    return random.choice(
        (
            PartitionChangeRecord(partition_id=index, topic_id=topic_id, isr=[2], leader=2),
            PartitionChangeRecord(
                partition_id=index,
                topic_id=topic_id,
                isr=[],
                leader=-1,
                eligible_leader_replicas=[1],
                last_known_elr=[1],
            ),
            PartitionChangeRecord(
                partition_id=index,
                topic_id=topic_id,
                isr=[1],
                leader=1,
                leader_recovery_state=1,
                eligible_leader_replicas=[],
                last_known_elr=[],
            ),
            PartitionChangeRecord(
                partition_id=index,
                topic_id=topic_id,
                directories=[uuid(100), uuid(200)],
                leader_recovery_state=0,
            ),
        )
    )


def _other(random: Random, step: int) -> Message:
    return random.choice(
        (
            NoOpRecord(),
            ProducerIdsRecord(broker_id=1, broker_epoch=1, next_producer_id=step * 1000),
            ClientQuotaRecord(
                entity=[ClientQuotaRecord.EntityData(entity_type="user", entity_name=None)],
                key="producer_byte_rate",
                value=float(step),
                remove=random.random() < 0.3,
            ),
            UserScramCredentialRecord(
                name=f"u{step % 3}", mechanism=1, salt=b"s", stored_key=b"k", iterations=4096
            ),
            AccessControlEntryRecord(
                id=uuid(90_000 + step),
                resource_type=2,
                resource_name="t",
                pattern_type=3,
                principal="User:u",
                host="*",
                operation=3,
                permission_type=3,
            ),
            DelegationTokenRecord(owner="o", requester="r", token_id=f"t{step % 2}"),
            RegisterControllerRecord(controller_id=step % 3, incarnation_id=uuid(step)),
            FeatureLevelRecord(name="group.version", feature_level=step % 2),
        )
    )
