"""The tree that the metadata shell shows: Kafka's names, Kafka's texts (KIP-801 images)."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import Final, TypeAlias

from spindle import __version__
from spindle.common.ids import Endpoint
from spindle.common.java_text import java_double
from spindle.common.security_protocol import SecurityProtocol
from spindle.common.uuids import uuid_text
from spindle.config.broker_synonyms import broker_key
from spindle.metadata.client_quotas import QuotaEntity
from spindle.metadata.cluster import BrokerRegistration, ControllerRegistration
from spindle.metadata.configs import BROKER_RESOURCE, ConfigResource
from spindle.metadata.features import METADATA_VERSION, VersionRange, metadata_version_name
from spindle.metadata.image import MetadataImage
from spindle.metadata.partitions import RECOVERED, PartitionRegistration
from spindle.metadata.security import (
    AccessControlEntry,
    DelegationToken,
    SecurityImage,
)
from spindle.metadata.topics import TopicImage
from spindle.security.scram import SCRAM_MECHANISMS, ScramCredential
from spindle.security.secret import HIDDEN

_PROTOCOLS: Final = {protocol.value: protocol.name for protocol in SecurityProtocol}
_RESOURCES: Final = {2: "TOPIC", 4: "BROKER", 8: "BROKER_LOGGER", 16: "CLIENT_METRICS", 32: "GROUP"}
_ACL_RESOURCES: Final = (
    *("UNKNOWN", "ANY", "TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID"),
    *("DELEGATION_TOKEN", "USER"),
)
_ACL_PATTERNS: Final = ("UNKNOWN", "ANY", "MATCH", "LITERAL", "PREFIXED")
_ACL_OPERATIONS: Final = (
    *("UNKNOWN", "ANY", "ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE"),
    *("CLUSTER_ACTION", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE"),
    *("CREATE_TOKENS", "DESCRIBE_TOKENS", "TWO_PHASE_COMMIT"),
)
_ACL_PERMISSIONS: Final = ("UNKNOWN", "ANY", "DENY", "ALLOW")
_QUOTA_TYPES: Final = {"client-id": "clientId", "ip": "ip", "user": "user"}


class Directory:
    """A node with children, which are built when they are first needed."""

    def __init__(self, make: Callable[[], "Mapping[str, Node]"]) -> None:
        self._make = make

    @cached_property
    def children(self) -> "Mapping[str, Node]":
        """Children by name, in the order of the names."""
        return dict(sorted(self._make().items()))


Node: TypeAlias = Directory | str
"""A directory, or the text of a leaf."""


def root_of(image: MetadataImage) -> Directory:
    """Return the root: `image` holds the metadata, `local` facts about the shell itself."""
    return Directory(
        lambda: {
            "image": Directory(partial(_image, image)),
            "local": Directory(lambda: {"version": __version__}),
        }
    )


def _image(image: MetadataImage) -> Mapping[str, Node]:
    security = image.security
    return {
        "acls": Directory(lambda: {"byId": Directory(partial(_acls, security))}),
        "clientQuotas": Directory(partial(_quotas, image)),
        "cluster": Directory(partial(_cluster, image)),
        "configs": Directory(partial(_configs, image)),
        "delegationToken": Directory(
            lambda: {name: _token(name, at) for name, at in security.delegation_tokens.items()}
        ),
        "features": Directory(partial(_features, image)),
        "producerIds": Directory(
            lambda: {"nextProducerId": str(image.producer_ids.next_producer_id)}
        ),
        "provenance": _provenance(image),
        "scram": Directory(
            lambda: {
                name: Directory(partial(_scram, security, mechanism))
                for name, mechanism in SCRAM_MECHANISMS.items()
            }
        ),
        "topics": Directory(
            lambda: {
                "byId": Directory(partial(_topics_by_id, image)),
                "byName": Directory(partial(_topics_by_name, image)),
            }
        ),
    }


def _provenance(image: MetadataImage) -> str:
    at = image.provenance
    time = datetime.fromtimestamp(at.last_append_time_ms / 1000, UTC)
    fraction = f".{at.last_append_time_ms % 1000:03d}".rstrip("0").rstrip(".")
    return (
        f"offset {at.last_offset}, epoch {at.last_epoch}, "
        f"time {time:%Y-%m-%dT%H:%M:%S}{fraction}Z[UTC]"
    )


# -- features, configurations, quotas


def _features(image: MetadataImage) -> Mapping[str, Node]:
    nodes: dict[str, Node] = {
        f"finalized_{name}": str(level)
        for name, level in image.features.levels.items()
        if name != METADATA_VERSION
    }
    known = image.features.is_bootstrapped
    level = f"[{metadata_version_name(image.metadata_version)}]" if known else ".empty"
    nodes["metadataVersion"] = f"Optional{level}"
    return nodes


def _configs(image: MetadataImage) -> Mapping[str, Node]:
    return {
        _resource_name(resource): Directory(partial(_config_values, resource, values))
        for resource, values in image.configs.by_resource.items()
    }


def _config_values(resource: ConfigResource, values: Mapping[str, str]) -> Mapping[str, Node]:
    """Return the values of a resource; unlike Kafka's shell, without passwords and keys."""
    if resource.resource_type != BROKER_RESOURCE:
        return dict(values)
    keys = {name: broker_key(name) for name in values}
    return {
        name: HIDDEN if key is None or key.is_sensitive else values[name]
        for name, key in keys.items()
    }


def _resource_name(resource: ConfigResource) -> str:
    name = _RESOURCES.get(resource.resource_type, str(resource.resource_type))
    return f"{name}:{resource.name}" if resource.name else name


def _quotas(image: MetadataImage) -> Mapping[str, Node]:
    return {
        _entity_name(entity): Directory(partial(_limits, limits))
        for entity, limits in image.client_quotas.by_entity.items()
    }


def _limits(limits: Mapping[str, float]) -> Mapping[str, Node]:
    return {key: java_double(limit) for key, limit in limits.items()}


def _entity_name(entity: QuotaEntity) -> str:
    """Return the name of a quota entity; unlike Kafka's shell, name its default parts as well."""
    parts = []
    for kind, name in entity:
        text = "<default>" if name is None else name
        for special in "\\()":
            text = text.replace(special, f"\\{special}")
        parts.append(f"{_QUOTA_TYPES.get(kind, kind)}({text})")
    return "_".join(parts)


# -- nodes of the cluster


def _cluster(image: MetadataImage) -> Mapping[str, Node]:
    cluster = image.cluster
    return {
        "brokers": Directory(lambda: {str(i): _broker(b) for i, b in cluster.brokers.items()}),
        "controllers": Directory(
            lambda: {str(i): _controller(c) for i, c in cluster.controllers.items()}
        ),
    }


def _broker(broker: BrokerRegistration) -> str:
    rack = "Optional.empty" if broker.rack is None else f"Optional[{broker.rack}]"
    return (
        f"BrokerRegistration(id={broker.broker_id}, epoch={broker.epoch}, "
        f"incarnationId={uuid_text(broker.incarnation_id)}, "
        f"listeners={_endpoints(broker.endpoints)}, "
        f"supportedFeatures={_ranges(broker.features)}, rack={rack}, "
        f"fenced={_flag(broker.is_fenced)}, "
        f"inControlledShutdown={_flag(broker.is_in_controlled_shutdown)}, "
        f"isMigratingZkBroker={_flag(broker.is_migrating_zk_broker)}, "
        f"directories={_ids(broker.directories)}, "
        f"cordonedDirectories={_ids(broker.cordoned_directories or ())})"
    )


def _controller(controller: ControllerRegistration) -> str:
    return (
        f"ControllerRegistration(id={controller.controller_id}, "
        f"incarnationId={uuid_text(controller.incarnation_id)}, "
        f"zkMigrationReady={_flag(controller.is_zk_migration_ready)}, "
        f"listeners={_endpoints(controller.endpoints)}, "
        f"supportedFeatures={_ranges(controller.features)})"
    )


def _endpoints(endpoints: tuple[Endpoint, ...]) -> str:
    texts = [
        f"Endpoint(listenerName='{e.listener}', "
        f"securityProtocol={_PROTOCOLS.get(e.security_protocol, e.security_protocol)}, "
        f"host='{e.host}', port={e.port})"
        for e in sorted(endpoints, key=lambda e: e.listener)
    ]
    return f"[{', '.join(texts)}]"


def _ranges(ranges: Mapping[str, VersionRange]) -> str:
    texts = [f"{name}: {_range(at)}" for name, at in sorted(ranges.items())]
    return f"{{{', '.join(texts)}}}"


def _range(at: VersionRange) -> str:
    return str(at.minimum) if at.minimum == at.maximum else f"{at.minimum}-{at.maximum}"


def _ids(ids: tuple[bytes, ...]) -> str:
    return f"[{', '.join(map(uuid_text, ids))}]"


def _flag(value: bool) -> str:
    return "true" if value else "false"


# -- topics


def _topics_by_id(image: MetadataImage) -> Mapping[str, Node]:
    topics = image.topics.by_id.items()
    return {uuid_text(topic_id): Directory(partial(_topic, topic)) for topic_id, topic in topics}


def _topics_by_name(image: MetadataImage) -> Mapping[str, Node]:
    topics = image.topics.by_name.items()
    return {name: Directory(partial(_topic, topic)) for name, topic in topics}


def _topic(topic: TopicImage) -> Mapping[str, Node]:
    nodes: dict[str, Node] = {
        str(number): _partition(partition) for number, partition in topic.partitions.items()
    }
    return {**nodes, "id": uuid_text(topic.topic_id), "name": topic.name}


def _partition(partition: PartitionRegistration) -> str:
    state = "RECOVERED" if partition.leader_recovery_state == RECOVERED else "RECOVERING"
    return (
        f"PartitionRegistration(replicas={list(partition.replicas)}, "
        f"directories={_ids(partition.directories)}, isr={list(partition.isr)}, "
        f"removingReplicas={list(partition.removing_replicas)}, "
        f"addingReplicas={list(partition.adding_replicas)}, elr={list(partition.elr)}, "
        f"lastKnownElr={list(partition.last_known_elr)}, leader={partition.leader}, "
        f"leaderRecoveryState={state}, leaderEpoch={partition.leader_epoch}, "
        f"partitionEpoch={partition.partition_epoch})"
    )


# -- security


def _acls(security: SecurityImage) -> Mapping[str, Node]:
    return {uuid_text(acl_id): _acl(entry) for acl_id, entry in security.acls.items()}


def _acl(entry: AccessControlEntry) -> str:
    return (
        f"StandardAcl[resourceType={_named(_ACL_RESOURCES, entry.resource_type)}, "
        f"resourceName={entry.resource_name}, "
        f"patternType={_named(_ACL_PATTERNS, entry.pattern_type)}, "
        f"principal={entry.principal}, host={entry.host}, "
        f"operation={_named(_ACL_OPERATIONS, entry.operation)}, "
        f"permissionType={_named(_ACL_PERMISSIONS, entry.permission_type)}]"
    )


def _named(names: tuple[str, ...], number: int) -> str:
    return names[number] if 0 <= number < len(names) else names[0]


def _scram(security: SecurityImage, mechanism: int) -> Mapping[str, Node]:
    return {
        user.name: _credential(credential)
        for user, credential in security.scram.items()
        if user.mechanism == mechanism
    }


def _credential(credential: ScramCredential) -> str:
    """Return the credential without the parts that allow guessing the password.

    Kafka's shell prints it all.
    """
    return (
        f"ScramCredentialData(salt={HIDDEN}, storedKey={HIDDEN}, serverKey={HIDDEN}, "
        f"iterations={credential.iterations})"
    )


def _token(token_id: str, token: DelegationToken) -> str:
    # The brackets are Kafka's.
    return (
        f"DelegationTokenDatatokenId={token_id}(owner={token.owner}"
        f"(tokenRequester={token.requester}(renewers={' '.join(token.renewers)}, "
        f"issueTimestamp={token.issue_timestamp_ms}, maxTimestamp={token.max_timestamp_ms}), "
        f"expiryTimestamp={token.expiration_timestamp_ms}"
    )
