"""The records of a snapshot: an image written so that replaying it restores the image.

The order is Kafka's: features (metadata.version first, as it decides the versions of the rest),
brokers, controllers, topics each with its partitions, configurations, client quotas, producer ids,
ACLs, SCRAM credentials, delegation tokens.
"""

from collections.abc import Iterator

from spindle.metadata.broker_registration import feature_rows, listener_rows
from spindle.metadata.cluster import BrokerRegistration, ControllerRegistration
from spindle.metadata.features import (
    CONTROLLER_REGISTRATION_LEVEL,
    DELEGATION_TOKEN_LEVEL,
    METADATA_VERSION,
    SCRAM_LEVEL,
)
from spindle.metadata.image import MetadataImage
from spindle.metadata.record_versions import partition_version, register_broker_version
from spindle.metadata.security import SecurityImage
from spindle.metadata.topics import TopicImage
from spindle.protocol.message import Message
from spindle.protocol.messages.metadata_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    FeatureLevelRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    TopicRecord,
    UserScramCredentialRecord,
)


def snapshot_records(image: MetadataImage) -> Iterator[Message]:
    """Return all records of the image, in order."""
    version = partition_version(image.metadata_version)
    yield from records_before_topics(image)
    for topic in image.topics.by_id.values():
        yield topic_record(topic)
        for partition_id, registration in topic.partitions.items():
            yield registration.to_record(topic.topic_id, partition_id, version)
    yield from records_after_topics(image)


def topic_record(topic: TopicImage) -> TopicRecord:
    """Return the topic's record, which precedes those of its partitions."""
    return TopicRecord(name=topic.name, topic_id=topic.topic_id)


def records_before_topics(image: MetadataImage) -> Iterator[Message]:
    """Return the features, which decide the versions of all records, and the nodes."""
    level = image.metadata_version
    yield from _features(image)
    for broker in image.cluster.brokers.values():
        yield register_broker_record(broker, level)
    if level >= CONTROLLER_REGISTRATION_LEVEL:
        for controller in image.cluster.controllers.values():
            yield register_controller_record(controller)


def records_after_topics(image: MetadataImage) -> Iterator[Message]:
    """Return the configurations and all that follows them."""
    for resource, values in image.configs.by_resource.items():
        for name, value in values.items():
            yield ConfigRecord(
                resource_type=resource.resource_type,
                resource_name=resource.name,
                name=name,
                value=value,
            )
    yield from _client_quotas(image)
    if image.producer_ids.next_producer_id >= 0:
        yield ProducerIdsRecord(
            broker_id=-1, broker_epoch=-1, next_producer_id=image.producer_ids.next_producer_id
        )
    yield from _security(image.security, image.metadata_version)


def register_broker_record(broker: BrokerRegistration, metadata_version: int) -> Message:
    """Return the record that establishes this registration, at this level of detail."""
    version = register_broker_version(metadata_version)
    cordoned = broker.cordoned_directories
    return RegisterBrokerRecord(
        broker_id=broker.broker_id,
        is_migrating_zk_broker=broker.is_migrating_zk_broker,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=listener_rows(RegisterBrokerRecord.BrokerEndpoint, broker.endpoints),
        features=feature_rows(RegisterBrokerRecord.BrokerFeature, broker.features),
        rack=broker.rack,
        fenced=broker.is_fenced,
        in_controlled_shutdown=broker.is_in_controlled_shutdown,
        log_dirs=list(broker.directories) if version >= 3 else [],
        cordoned_log_dirs=list(cordoned) if version >= 4 and cordoned is not None else None,
    )


def register_controller_record(controller: ControllerRegistration) -> Message:
    """Return the record that establishes this registration."""
    return RegisterControllerRecord(
        controller_id=controller.controller_id,
        incarnation_id=controller.incarnation_id,
        zk_migration_ready=controller.is_zk_migration_ready,
        end_points=listener_rows(RegisterControllerRecord.ControllerEndpoint, controller.endpoints),
        features=feature_rows(RegisterControllerRecord.ControllerFeature, controller.features),
    )


def _features(image: MetadataImage) -> Iterator[Message]:
    if not image.features.is_bootstrapped:
        return
    yield FeatureLevelRecord(name=METADATA_VERSION, feature_level=image.metadata_version)
    for name, level in image.features.levels.items():
        if name != METADATA_VERSION:
            yield FeatureLevelRecord(name=name, feature_level=level)


def _client_quotas(image: MetadataImage) -> Iterator[Message]:
    for entity, limits in image.client_quotas.by_entity.items():
        for key, value in limits.items():
            yield ClientQuotaRecord(
                entity=[
                    ClientQuotaRecord.EntityData(entity_type=entity_type, entity_name=name)
                    for entity_type, name in entity
                ],
                key=key,
                value=value,
                remove=False,
            )


def _security(security: SecurityImage, level: int) -> Iterator[Message]:
    for acl_id, entry in security.acls.items():
        yield AccessControlEntryRecord(
            id=acl_id,
            resource_type=entry.resource_type,
            resource_name=entry.resource_name,
            pattern_type=entry.pattern_type,
            principal=entry.principal,
            host=entry.host,
            operation=entry.operation,
            permission_type=entry.permission_type,
        )
    if level >= SCRAM_LEVEL:
        for user, credential in security.scram.items():
            yield UserScramCredentialRecord(
                name=user.name,
                mechanism=user.mechanism,
                salt=credential.salt,
                stored_key=credential.stored_key,
                server_key=credential.server_key,
                iterations=credential.iterations,
            )
    if level >= DELEGATION_TOKEN_LEVEL:
        for token_id, token in security.delegation_tokens.items():
            yield DelegationTokenRecord(
                owner=token.owner,
                requester=token.requester,
                renewers=list(token.renewers),
                issue_timestamp=token.issue_timestamp_ms,
                max_timestamp=token.max_timestamp_ms,
                expiration_timestamp=token.expiration_timestamp_ms,
                token_id=token_id,
            )
