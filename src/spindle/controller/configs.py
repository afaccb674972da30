"""IncrementalAlterConfigs and AlterConfigs (KIP-133, KIP-226, KIP-339).

Values are stored as they were sent. `ConfigRules` checks their meaning; this module has only the
cluster-wide rules: min.insync.replicas has one value if the ELR is enabled (KIP-966), and cordons
need a metadata.version that supports them (KIP-1066).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from spindle.authorization.access import Access
from spindle.common.errors import ApiError, ConfigError, ErrorCode
from spindle.config.broker_keys.spindle import CORDON_NOTES
from spindle.config.cordon_notes import kept_notes, notes_text, parse_notes
from spindle.config.log_dir_paths import cordon_entries
from spindle.controller.access_checks import check_alter_configs
from spindle.controller.decision import ControllerContext, Decision, OperationContext, repeated
from spindle.controller.topic_names import check_topic_name
from spindle.controller.topic_settings import MIN_INSYNC_REPLICAS
from spindle.metadata.configs import (
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    DEFAULT_BROKER,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    ConfigResource,
)
from spindle.metadata.features import CORDONED_DIRECTORIES_LEVEL, metadata_version_name
from spindle.metadata.image import MetadataImage
from spindle.protocol.codec import MAX_STRING_BYTES
from spindle.protocol.message import Message
from spindle.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from spindle.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from spindle.protocol.messages.metadata_records import (
    ClearElrRecord,
    ConfigRecord,
    PartitionChangeRecord,
)

SET: Final = 0
DELETE: Final = 1
APPEND: Final = 2
SUBTRACT: Final = 3
CORDONED_LOG_DIRS: Final = "cordoned.log.dirs"

_Incremental = IncrementalAlterConfigsRequest.AlterConfigsResource
_Replaced = AlterConfigsRequest.AlterConfigsResource
_Response = TypeVar("_Response", IncrementalAlterConfigsResponse, AlterConfigsResponse)
Changes = dict[str, str | None]
"""New values by key; None removes a key."""


class _Sender(NamedTuple):
    """The sender of a request, and whether a broker has forwarded it."""

    access: Access
    is_forwarded: bool


def incremental_alter_configs(
    given: OperationContext, request: IncrementalAlterConfigsRequest
) -> Decision[IncrementalAlterConfigsResponse]:
    """Change single keys; each resource succeeds or fails as a whole.

    A request that a broker forwarded has been checked against that broker's own files.
    """

    def changes_of(resource: ConfigResource, asked: _Incremental) -> Changes:
        return _apply_operations(given.image, resource, asked, given.context)

    def values_of(asked: _Incremental) -> list[tuple[str, str | None]]:
        return [(c.name, c.value) for c in asked.configs if c.config_operation != DELETE]

    response = IncrementalAlterConfigsResponse()
    sender = _Sender(given.access, given.is_forwarded)
    return _alter(given.image, request, response, given.context, values_of, changes_of, sender)


def alter_configs(
    given: OperationContext, request: AlterConfigsRequest
) -> Decision[AlterConfigsResponse]:
    """Replace all dynamic values of resources (the older API)."""

    def changes_of(resource: ConfigResource, asked: _Replaced) -> Changes:
        new = {config.name: config.value or "" for config in asked.configs}
        old = given.image.configs.of(resource)
        return {**new, **{key: None for key in old if key not in new}}

    def values_of(asked: _Replaced) -> list[tuple[str, str | None]]:
        return [(config.name, config.value) for config in asked.configs]

    response = AlterConfigsResponse()
    sender = _Sender(given.access, given.is_forwarded)
    return _alter(given.image, request, response, given.context, values_of, changes_of, sender)


def _alter(
    image: MetadataImage,
    request: Any,
    response: _Response,
    context: ControllerContext,
    values_of: Callable[[Any], Sequence[tuple[str, str | None]]],
    changes_of: Callable[[ConfigResource, Any], Changes],
    sender: _Sender,
) -> Decision[_Response]:
    """Check and alter each resource of either AlterConfigs request; each has its own result."""
    records: list[Message] = []
    duplicates = repeated(
        ConfigResource(r.resource_type, r.resource_name) for r in request.resources
    )
    for asked in request.resources:
        resource = ConfigResource(asked.resource_type, asked.resource_name)
        result = response.AlterConfigsResourceResponse(
            resource_type=asked.resource_type,
            resource_name=asked.resource_name,
            error_message=None,
        )
        try:
            names = [config.name for config in asked.configs]
            check_form(names, values_of(asked), is_repeated=resource in duplicates)
            _check_type(resource)
            check_alter_configs(sender.access, resource)
            changes = changes_of(resource, asked)
            records += _change_records(
                image, resource, changes, context, is_forwarded=sender.is_forwarded
            )
        except ApiError as error:
            result.error_code, result.error_message = error.code, error.message
        response.responses.append(result)
    return Decision(response, [] if request.validate_only else records, is_atomic=True)


def check_form(
    names: Sequence[str], values: Sequence[tuple[str, str | None]], *, is_repeated: bool = False
) -> None:
    """Refuse requests that are malformed for every kind of resource."""
    if is_repeated:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
    if len(set(names)) < len(names):
        raise ApiError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    nulls = [name for name, value in values if value is None]
    if nulls:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(nulls)}"
        )


def _check_type(resource: ConfigResource) -> None:
    known = (TOPIC_RESOURCE, BROKER_RESOURCE, CLIENT_METRICS_RESOURCE, GROUP_RESOURCE)
    if resource.resource_type not in known:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.resource_type}")


def _check_named(resource: ConfigResource) -> None:
    """Refuse an invalid resource name; only brokers have a default resource."""
    if resource.name and resource.resource_type == TOPIC_RESOURCE:
        check_topic_name(resource.name)
    if resource.name or resource.resource_type == BROKER_RESOURCE:
        return
    if resource.resource_type == CLIENT_METRICS_RESOURCE:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
    kind = "topic" if resource.resource_type == TOPIC_RESOURCE else "group"
    raise ApiError(ErrorCode.INVALID_REQUEST, f"Default {kind} resources are not allowed.")


def _check_lengths(changes: Changes) -> None:
    """Refuse a value that appends have made longer than a record's maximum string length."""
    for value in changes.values():
        if value is not None and len(value.encode()) > MAX_STRING_BYTES:
            raise ApiError(
                ErrorCode.INVALID_CONFIG,
                "The configuration value cannot be added because it exceeds the maximum value "
                f"size of {MAX_STRING_BYTES} bytes.",
            )


def _check_existence(image: MetadataImage, resource: ConfigResource) -> None:
    if resource.resource_type == TOPIC_RESOURCE:
        if resource.name not in image.topics.by_name:
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"The topic '{resource.name}' does not exist.",
            )
    elif resource.resource_type == BROKER_RESOURCE:
        if resource.name and not resource.name.isdecimal():
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"Broker resource name must be empty or a broker id, not '{resource.name}'.",
            )
        if (
            resource.name
            and int(resource.name) not in image.cluster.brokers
            and (int(resource.name) not in image.cluster.controllers)
        ):
            raise ApiError(
                ErrorCode.BROKER_ID_NOT_REGISTERED, f"No node with id {resource.name} found."
            )


def _apply_operations(
    image: MetadataImage,
    resource: ConfigResource,
    asked: _Incremental,
    context: ControllerContext,
) -> Changes:
    current = image.configs.of(resource)
    rules = context.config_rules
    changes: Changes = {}
    for config in asked.configs:
        name, operation = config.name, config.config_operation
        if operation == DELETE:
            changes[name] = None
            continue
        value = config.value or ""
        if operation == SET:
            changes[name] = value
            continue
        if operation not in (APPEND, SUBTRACT):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown operation {operation} for {name}")
        if not rules.is_list(resource.resource_type, name):
            verb = "APPEND" if operation == APPEND else "SUBTRACT"
            raise ApiError(
                ErrorCode.INVALID_CONFIG,
                f"Can't {verb} to key {name} because its type is not LIST.",
            )
        start = current.get(name, rules.default(resource.resource_type, name)) or ""
        changes[name] = _edit_list(start, value, is_append=operation == APPEND)
    return changes


def _edit_list(old: str, given: str, *, is_append: bool) -> str:
    entries = [entry.strip() for entry in old.split(",") if entry.strip()]
    edits = [entry.strip() for entry in given.split(",") if entry.strip()]
    if is_append:
        entries += [entry for entry in edits if entry not in entries]
    else:
        entries = [entry for entry in entries if entry not in edits]
    return ",".join(entries)


def _change_records(
    image: MetadataImage,
    resource: ConfigResource,
    changes: Changes,
    context: ControllerContext,
    *,
    is_forwarded: bool,
) -> list[Message]:
    current = image.configs.of(resource)
    if resource.resource_type == BROKER_RESOURCE:
        # Unchanged values of brokers are written, too: they make brokers read their key stores
        # again, and min.insync.replicas clears the ELR.
        changes = _without_ended_notes(current, changes)
    else:
        changes = {key: value for key, value in changes.items() if current.get(key) != value}
    after = {key: value for key, value in current.items() if key not in changes}
    after |= {key: value for key, value in changes.items() if value is not None}
    _check_named(resource)
    _check_lengths(changes)
    context.config_rules.validate(resource.resource_type, resource.name, after)
    _check_existence(image, resource)
    _check_min_insync_replicas(image, resource, changes)
    _check_cordoned(image, resource, current, changes, is_forwarded=is_forwarded)
    records: list[Message] = [
        ConfigRecord(
            resource_type=resource.resource_type,
            resource_name=resource.name,
            name=name,
            value=value,
        )
        for name, value in changes.items()
    ]
    return records + clear_elr_records(image, resource, changes)


def _without_ended_notes(current: Mapping[str, str], changes: Changes) -> Changes:
    """Extend a change of the cordons: remove the notes of the cordons that it ends.

    So an old note never applies to a later cordon of the same directory, whichever tool changes the
    cordons. A request that also changes the notes is left as it is.
    """
    if CORDONED_LOG_DIRS not in changes or CORDON_NOTES in changes or CORDON_NOTES not in current:
        return changes
    entries = cordon_entries(changes[CORDONED_LOG_DIRS] or "")
    try:
        notes = parse_notes(current[CORDON_NOTES])
    except ConfigError:
        notes = ()
    text = notes_text(kept_notes(notes, entries))
    return changes if text == current[CORDON_NOTES] else {**changes, CORDON_NOTES: text}


def clear_elr_records(
    image: MetadataImage, resource: ConfigResource, changes: Mapping[str, str | None]
) -> list[Message]:
    """Return the records that clear the ELR when min.insync.replicas changes (KIP-966).

    A partition with an empty ISR keeps its ELR: nothing was committed since, and no other replica
    could be elected. Its ELR is therefore written again after the record that clears it. (Kafka
    loses it.)
    """
    if not image.features.is_elr_enabled or MIN_INSYNC_REPLICAS not in changes:
        return []
    if resource.resource_type == TOPIC_RESOURCE:
        name = resource.name
    elif resource == DEFAULT_BROKER:
        name = ""
    else:
        return []
    topics = [
        topic
        for topic in ([image.topics.by_name.get(name)] if name else image.topics.by_id.values())
        if topic is not None
    ]
    return [
        ClearElrRecord(topic_name=name),
        *(
            PartitionChangeRecord(
                topic_id=topic.topic_id,
                partition_id=partition_id,
                eligible_leader_replicas=list(partition.elr) or None,
                last_known_elr=list(partition.last_known_elr) or None,
            )
            for topic in topics
            for partition_id, partition in topic.partitions.items()
            if not partition.isr and (partition.elr or partition.last_known_elr)
        ),
    ]


def _check_min_insync_replicas(
    image: MetadataImage, resource: ConfigResource, changes: Mapping[str, str | None]
) -> None:
    if not image.features.is_elr_enabled or MIN_INSYNC_REPLICAS not in changes:
        return
    if resource == DEFAULT_BROKER:
        if changes[MIN_INSYNC_REPLICAS] is None:
            raise ApiError(
                ErrorCode.INVALID_CONFIG,
                "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.",
            )
    elif resource.resource_type == BROKER_RESOURCE:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            "Broker-level min.insync.replicas cannot be altered while ELR is enabled.",
        )


def _check_cordoned(
    image: MetadataImage,
    resource: ConfigResource,
    current: Mapping[str, str],
    changes: Mapping[str, str | None],
    *,
    is_forwarded: bool,
) -> None:
    if resource.resource_type != BROKER_RESOURCE or CORDONED_LOG_DIRS not in changes:
        return
    if image.metadata_version < CORDONED_DIRECTORIES_LEVEL:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            "The cordoned.log.dirs configuration value cannot be set because it requires "
            f"metadata.version >= {metadata_version_name(CORDONED_DIRECTORIES_LEVEL)}",
        )
    value = changes[CORDONED_LOG_DIRS]
    if is_forwarded or value is None:
        return
    # A controller does not know the broker's paths, but a path can always be uncordoned.
    old = cordon_entries(current.get(CORDONED_LOG_DIRS, ""))
    if any(entry not in old for entry in cordon_entries(value)):
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            "When updating cordoned.log.dirs via controllers,  the new value must be a subset of "
            "the current configuration value.",
        )
