"""Checks of a request that changes the configuration of a resource.

Resources are topics, brokers, groups and client metrics subscriptions. The error codes are Kafka's:
INVALID_CONFIG where the controller refuses a value; INVALID_REQUEST where the broker refuses it, or
where the name of the resource is invalid.
"""

import re
from collections.abc import Mapping
from typing import Final

from spindle.common.errors import ApiError, ConfigError, ErrorCode
from spindle.config.broker_keys import DYNAMIC_KEYS
from spindle.config.broker_keys.spindle import (
    CORDON_HIGH_WATERMARK,
    CORDON_LOW_WATERMARK,
    CORDON_NOTES,
)
from spindle.config.broker_synonyms import (
    CLUSTER_LEVEL_LISTENER_KEYS,
    broker_key,
    is_dynamic,
    listener_override,
)
from spindle.config.client_metrics_keys import CLIENT_METRICS_KEYS
from spindle.config.cordon_notes import kept_notes, parse_notes
from spindle.config.definition import ConfigKey, UpdateMode
from spindle.config.group_keys import GROUP_BROKER_KEYS, GROUP_KEYS
from spindle.config.log_dir_paths import cordon_entries
from spindle.config.node_checks import check_cordoned_log_dirs
from spindle.config.node_config import NodeConfig
from spindle.config.resources import ConfigResourceType
from spindle.config.topic_config import NO_CONFIG, default_of
from spindle.config.topic_keys import TOPIC_KEYS
from spindle.config.values import ConfigValue


def validate_resource(
    node: NodeConfig,
    resource_type: int,
    resource_name: str,
    values: Mapping[str, str],
    old_values: Mapping[str, str] = NO_CONFIG,
) -> None:
    """Check all values that a resource would have after a change.

    Args:
        node: gives the defaults and limits that values are checked against.
        old_values: the values that the resource has now.

    Raises:
        ApiError: INVALID_CONFIG or INVALID_REQUEST, naming key and value.
    """
    if resource_type == ConfigResourceType.TOPIC:
        validate_topic(node, resource_name, values, old_values)
    elif resource_type == ConfigResourceType.BROKER:
        validate_broker(resource_name, values)
    elif resource_type == ConfigResourceType.GROUP:
        validate_group(node, resource_name, values)
    elif resource_type == ConfigResourceType.CLIENT_METRICS:
        validate_client_metrics(resource_name, values)
    else:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource_type}")


def validate_topic(
    node: NodeConfig,
    topic: str,
    values: Mapping[str, str],
    old_values: Mapping[str, str] = NO_CONFIG,
) -> None:
    """Check the values of a topic.

    Raises:
        ApiError: INVALID_CONFIG where a value is refused, INVALID_REQUEST without a topic.
    """
    if not topic:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
    for name in values:
        if name not in TOPIC_KEYS:
            raise _invalid_config(f"Unknown topic config name: {name}")
    try:
        parsed = {
            name: key.parse(values[name]) if name in values else default_of(name, node)
            for name, key in TOPIC_KEYS.items()
        }
    except ConfigError as error:
        raise _invalid_config(str(error)) from None
    _check_compaction_lags(parsed)
    _check_remote_storage(parsed, old_values)


def _check_compaction_lags(parsed: Mapping[str, ConfigValue]) -> None:
    low, high = _number(parsed, "min.compaction.lag.ms"), _number(parsed, "max.compaction.lag.ms")
    if low > high:
        raise _invalid_config(
            f"conflict topic config setting min.compaction.lag.ms ({low}) > "
            f"max.compaction.lag.ms ({high})"
        )


def _check_remote_storage(parsed: Mapping[str, ConfigValue], old_values: Mapping[str, str]) -> None:
    if parsed["remote.storage.enable"]:
        raise _invalid_config(
            "Tiered Storage functionality is disabled in the broker. Topic cannot be configured "
            "with remote log storage."
        )
    had_remote_storage = old_values.get("remote.storage.enable", "").strip().lower() == "true"
    if had_remote_storage and not parsed["remote.log.delete.on.disable"]:
        raise _invalid_config(
            "It is invalid to disable remote storage without deleting remote data: also set "
            "remote.log.delete.on.disable=true"
        )


def validate_broker(broker: str, values: Mapping[str, str]) -> None:
    """Check dynamic values of a broker, or of all brokers where `broker` is empty.

    Raises:
        ApiError: INVALID_REQUEST; the name is not the number of a broker, a key cannot be changed
            while the broker runs, or not for all brokers at once, or a value is refused.
    """
    if broker and not re.fullmatch(r"[+-]?[0-9]+", broker):
        raise _invalid_request("Unable to parse broker name as a base 10 number.")
    if broker and int(broker) < 0:
        raise _invalid_request("Invalid negative broker ID.")
    fixed = sorted(name for name in values if name in DYNAMIC_KEYS and not is_dynamic(name))
    if fixed:
        raise _invalid_request(f"Cannot update these configs dynamically: {_bracketed(fixed)}")
    bare = sorted(name for name in values if name in _PER_LISTENER_ONLY)
    if bare:
        raise _invalid_request(
            "These security configs can be dynamically updated only per-listener using the "
            f"listener prefix: {_bracketed(bare)}"
        )
    for name, text in values.items():
        key = broker_key(name)
        if key is not None:
            try:
                key.parse(text)
            except ConfigError as error:
                raise _invalid_request(str(error)) from None
    _check_cordon_notes(values)
    own = sorted(filter(_needs_broker, values))
    if own and not broker:
        raise _invalid_request(
            "Cannot update these configs at default cluster level, broker id must be specified: "
            f"{_bracketed(own)}"
        )


def _check_cordon_notes(values: Mapping[str, str]) -> None:
    """Refuse a note without a cordon: a later cordon of its path must not get it."""
    if CORDON_NOTES not in values or "cordoned.log.dirs" not in values:
        return
    text = values["cordoned.log.dirs"]
    notes = parse_notes(values[CORDON_NOTES])
    kept = kept_notes(notes, cordon_entries(text))
    unknown = [note.path for note in notes if note not in kept]
    if unknown:
        raise _invalid_request(
            f"{CORDON_NOTES} has a note of {', '.join(unknown)}, which is not an entry of "
            f"cordoned.log.dirs={text}"
        )


_PER_LISTENER_ONLY: Final = (
    "ssl.key.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.type",
    "ssl.truststore.certificates",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.type",
)


def _needs_broker(name: str) -> bool:
    base = listener_override(name)
    if base is not None:
        return base not in CLUSTER_LEVEL_LISTENER_KEYS
    key = DYNAMIC_KEYS.get(name)
    return key is not None and key.update_mode is UpdateMode.PER_BROKER


_WATERMARKS: Final = (CORDON_HIGH_WATERMARK, CORDON_LOW_WATERMARK)
_THREAD_COUNTS: Final = (
    "num.io.threads",
    "num.network.threads",
    "num.replica.fetchers",
    "num.recovery.threads.per.data.dir",
    "background.threads",
)


def validate_own_broker(
    node: NodeConfig, values: Mapping[str, str], dynamic: Mapping[str, str] = NO_CONFIG
) -> None:
    """Check new values against the property file of the broker, which only the broker knows.

    Args:
        values: the new values, already accepted by `validate_broker`.
        dynamic: the values that are set now, those of this broker over the defaults of all.

    Raises:
        ApiError: INVALID_REQUEST; a cordoned directory is not a log directory of the node
            (KIP-1066), or a rule between keys is broken.
    """
    text = values.get("cordoned.log.dirs")
    if text is not None:
        cordoned = DYNAMIC_KEYS["cordoned.log.dirs"].parse(text)
        assert isinstance(cordoned, tuple), cordoned
        try:
            check_cordoned_log_dirs(cordoned, node.log_dirs)
        except ConfigError as error:
            raise _invalid_request(f"requirement failed: {error}") from None
    watermarks = {k: dynamic[k] for k in _WATERMARKS if k in dynamic}
    try:
        NodeConfig.from_properties({**node.static, **watermarks, **values})
    except ConfigError as error:
        raise _invalid_request(str(error)) from None
    for name in _THREAD_COUNTS:
        if name in values:
            _check_thread_count(node, name, int(values[name]), dynamic.get(name))


def _check_thread_count(node: NodeConfig, name: str, wanted: int, dynamic: str | None) -> None:
    """Refuse, as Kafka does, to change the size of a thread pool by more than a factor of two."""
    current = node.integer(name) if dynamic is None else int(dynamic)
    if wanted > 2 * current:
        bound = f"value should not be greater than double the current value {current}"
    elif wanted < current / 2:
        bound = f"value should be at least half the current value {current}"
    else:
        return
    raise _invalid_request(
        "Invalid value org.apache.kafka.common.config.ConfigException: Dynamic thread count update "
        f"validation failed for {name}={wanted}, {bound} for configuration Invalid dynamic "
        "configuration"
    )


def validate_group(node: NodeConfig, group: str, values: Mapping[str, str]) -> None:
    """Check the values of a group against the limits of the node.

    Raises:
        ApiError: INVALID_CONFIG where a value is refused, INVALID_REQUEST without a group.
    """
    if not group:
        raise _invalid_request("Default group resources are not allowed.")
    for name in values:
        if name not in GROUP_KEYS:
            raise _invalid_config(f"Unknown group config name: {name}")
    _check_rack_tags(values.get("streams.rack.aware.assignment.tags", ""))
    try:
        parsed = _parsed(GROUP_KEYS, values)
    except ConfigError as error:
        raise _invalid_config(str(error)) from None
    for name in GROUP_KEYS:
        value = parsed.get(name)
        if isinstance(value, int | float):
            _check_group_bounds(node, name, value)
    assignors = node.names("group.streams.assignors")
    if parsed.get("streams.assignor.name", assignors[0]) not in assignors:
        raise _invalid_config(
            f"streams.assignor.name '{parsed['streams.assignor.name']}' is not a registered task "
            f"assignor. Registered assignors are: [{', '.join(assignors)}]."
        )
    defaults = {key: node.get(broker) for key, broker in GROUP_BROKER_KEYS.items()}
    for kind in ("consumer", "share", "streams"):
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        if _number(defaults | parsed, session) <= _number(defaults | parsed, heartbeat):
            raise _invalid_config(f"{session} must be greater than {heartbeat}")
    if str(parsed.get("errors.deadletterqueue.topic.name", "")).startswith("__"):
        raise _invalid_config(
            "errors.deadletterqueue.topic.name: DLQ topic name must not start with '__'"
        )


def _check_rack_tags(text: str) -> None:
    tags = [tag.strip() for tag in text.split(",")]
    if len(set(tags)) < len(tags):
        raise _invalid_config(
            "streams.rack.aware.assignment.tags must not contain duplicate tag keys."
        )


def _parsed(keys: Mapping[str, ConfigKey], values: Mapping[str, str]) -> dict[str, ConfigValue]:
    return {name: keys[name].parse(text) for name, text in values.items()}


def _check_group_bounds(node: NodeConfig, name: str, value: int | float) -> None:
    kind, _, rest = name.partition(".")
    low_key, high_key = f"group.{kind}.min.{rest}", f"group.{kind}.max.{rest}"
    if rest.startswith("num."):
        high_key = f"group.{kind}.max.{rest.removeprefix('num.')}"
    low = node.integer(low_key) if low_key in node.values else None
    high = node.integer(high_key) if high_key in node.values else None
    if (low is None or value >= low) and (high is None or value <= high):
        return
    if low is not None and high is not None:
        raise _invalid_config(f"{name} must be in the range {low} to {high} inclusive.")
    if low is not None:
        raise _invalid_config(f"{name} must be greater than or equal to {low}")
    raise _invalid_config(f"{name} must be less than or equal to {high}")


_MIN_INTERVAL_MS: Final = 100
_MAX_INTERVAL_MS: Final = 3_600_000
_MATCH_PROPERTIES: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)


def validate_client_metrics(subscription: str, values: Mapping[str, str]) -> None:
    """Check the values of a client metrics subscription (KIP-714).

    Raises:
        ApiError: INVALID_CONFIG or INVALID_REQUEST where a value is refused, as in Kafka.
    """
    if not subscription:
        raise _invalid_request("Subscription name can't be empty")
    for name in values:
        if name not in CLIENT_METRICS_KEYS:
            raise _invalid_request(f"Unknown client metrics configuration: {name}")
    try:
        parsed = _parsed(CLIENT_METRICS_KEYS, values)
    except ConfigError as error:
        raise _invalid_config(str(error)) from None
    interval_ms = parsed.get("interval.ms")
    if isinstance(interval_ms, int) and not _MIN_INTERVAL_MS <= interval_ms <= _MAX_INTERVAL_MS:
        raise _invalid_request(
            f"Invalid value {interval_ms} for interval.ms, interval must be between "
            f"{_MIN_INTERVAL_MS} and {_MAX_INTERVAL_MS} (1 hour)"
        )
    patterns = parsed.get("match")
    for pattern in patterns if isinstance(patterns, tuple) else ():
        if not _is_match_pattern(pattern):
            raise _invalid_config(f"Illegal client matching pattern: {pattern}")


def _is_match_pattern(pattern: str) -> bool:
    name, equals, expression = (part.strip() for part in pattern.partition("="))
    if not equals or not expression or "=" in expression or name not in _MATCH_PROPERTIES:
        return False
    try:
        re.compile(expression)
    except re.error:
        return False
    return True


def _number(parsed: Mapping[str, ConfigValue], name: str) -> int:
    value = parsed[name]
    assert isinstance(value, int), name
    return value


def _bracketed(names: list[str]) -> str:
    return f"[{', '.join(names)}]"


def _invalid_config(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_CONFIG, message)


def _invalid_request(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)
