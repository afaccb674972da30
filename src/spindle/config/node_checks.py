"""Rules between the keys of a node. A broken rule is a `ConfigError`.

The order of the checks is fixed, so the same file always fails with the same message.
"""

from collections.abc import Sequence
from typing import Final

from spindle.common.errors import ConfigError
from spindle.config.authorizer import authorizer_settings, early_start_listeners
from spindle.config.broker_keys.spindle import CORDON_HIGH_WATERMARK, CORDON_LOW_WATERMARK
from spindle.config.endpoints import WILDCARD_HOST, parse_address_limits
from spindle.config.listener_config import ListenerConfig
from spindle.config.log_dir_paths import EVERY_DIRECTORY, match_paths
from spindle.config.node_values import NodeValues
from spindle.config.sasl_settings import check_sasl
from spindle.config.topic_config import topic_config

_MIB = 1 << 20
_LAST_CODEC = 4

_TIMES: Final = ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms")
_BOUNDED: Final = (
    *(f"consumer.{name}" for name in _TIMES),
    *(f"share.{name}" for name in _TIMES),
    *(f"streams.{name}" for name in _TIMES),
    "share.delivery.count.limit",
    "share.record.lock.duration.ms",
    "share.partition.max.record.locks",
)
"""Keys below `group.` whose value has a lower and an upper limit of its own."""

_ASSIGNORS: Final = {
    "group.consumer.assignors": ("uniform", "range"),
    "group.share.assignors": ("simple",),
}


def check_node(config: NodeValues) -> None:
    """Refuse a node whose keys contradict each other.

    Raises:
        ConfigError: names the keys, their values and what is allowed.
    """
    _check_ids(config)
    _check_log(config)
    _check_replication(config)
    _check_quorum(config)
    _check_controller_listeners(config)
    if config.is_broker:
        _check_broker_listeners(config)
        check_cordoned_log_dirs(config.names("cordoned.log.dirs"), config.log_dirs)
    check_cordon_watermarks(
        config.decimal(CORDON_HIGH_WATERMARK), config.decimal(CORDON_LOW_WATERMARK)
    )
    _check_advertised_hosts(config)
    _check_node_logins(config)
    _check_connections(config)
    early_start_listeners(config)
    _check_codecs(config)
    _check_groups(config)


def check_supported(config: NodeValues) -> None:
    """Refuse a node whose clients would rely on a mechanism or an authorizer that it lacks.

    A key that merely changes nothing is not refused but warned about, see `node_warnings`.

    Raises:
        ConfigError: a listener with SASL cannot be served, or the settings of the authorizer are
            wrong.
    """
    check_sasl(config)
    authorizer_settings(config)
    early_start_listeners(config)


def _check_ids(config: NodeValues) -> None:
    broker_id = config.integer("broker.id")
    if config.node_id != broker_id:
        raise ConfigError(
            f"node.id={config.node_id} and broker.id={broker_id} must be the same; broker.id can "
            "be left out"
        )


def _check_log(config: NodeValues) -> None:
    defaults = topic_config(config)
    if defaults.segment_ms < 1:
        raise ConfigError(f"log.roll.ms must be at least 1, but is {defaults.segment_ms}")
    if defaults.segment_jitter_ms < 0:
        raise ConfigError(
            f"log.roll.jitter.ms must be at least 0, but is {defaults.segment_jitter_ms}"
        )
    if defaults.retention_ms == 0:
        raise ConfigError("log.retention.ms must be -1 (unlimited) or at least 1, but is 0")
    buffer_bytes = config.integer("log.cleaner.dedupe.buffer.size")
    threads = config.integer("log.cleaner.threads")
    if threads == 0:
        raise ConfigError("log.cleaner.threads must be at least 1, but is 0")
    if buffer_bytes // threads <= _MIB:
        raise ConfigError(
            f"log.cleaner.dedupe.buffer.size={buffer_bytes} must be more than {_MIB} bytes for "
            f"each of log.cleaner.threads={threads}"
        )


def _check_replication(config: NodeValues) -> None:
    wait_ms = config.integer("replica.fetch.wait.max.ms")
    for key in ("replica.socket.timeout.ms", "replica.lag.time.max.ms"):
        if wait_ms > config.integer(key):
            raise ConfigError(
                f"replica.fetch.wait.max.ms={wait_ms} must not be more than "
                f"{key}={config.integer(key)}"
            )


def _check_quorum(config: NodeValues) -> None:
    voter_ids = [voter.node_id for voter in config.quorum_voters]
    if not voter_ids and not config.quorum_bootstrap_servers:
        raise ConfigError(
            "controller.quorum.bootstrap.servers must list addresses of the quorum, or "
            "controller.quorum.voters its static voters; both are empty"
        )
    voters = ",".join(config.names("controller.quorum.voters"))
    if not config.is_controller and config.node_id in voter_ids:
        raise ConfigError(
            f"node.id={config.node_id} is among controller.quorum.voters={voters}, but "
            "process.roles does not contain controller"
        )
    if config.is_controller and voter_ids and config.node_id not in voter_ids:
        raise ConfigError(
            f"process.roles contains controller, so node.id={config.node_id} must be among "
            f"controller.quorum.voters={voters}"
        )
    unroutable = [voter.node_id for voter in config.quorum_voters if voter.host == WILDCARD_HOST]
    if unroutable:
        raise ConfigError(
            f"controller.quorum.voters={voters}: others cannot connect to {WILDCARD_HOST}, the "
            f"address of voter {unroutable[0]}"
        )
    if config.flag("controller.quorum.auto.join.enable") and not config.is_controller:
        raise ConfigError(
            "controller.quorum.auto.join.enable=true needs controller among process.roles"
        )


def _check_controller_listeners(config: NodeValues) -> None:
    names = ",".join(config.controller_listener_names)
    listening = [endpoint.listener for endpoint in config.controller_listeners]
    if not config.is_controller:
        if listening:
            raise ConfigError(
                f"listeners contains {listening[0]}, which is one of controller.listener.names="
                f"{names}, but process.roles does not contain controller"
            )
        for name in config.controller_listener_names:
            if name not in config.security_protocols:
                raise ConfigError(
                    f"controller.listener.names: listener {name} is not in "
                    "listener.security.protocol.map"
                )
        return
    if not config.is_broker and len(listening) < len(config.listeners):
        raise ConfigError(
            "with process.roles=controller every entry of listeners="
            f"{','.join(config.names('listeners'))} must be one of "
            f"controller.listener.names={names}"
        )
    for name in config.controller_listener_names:
        if name not in listening:
            raise ConfigError(
                f"controller.listener.names={names}: listener {name} is not in listeners="
                f"{','.join(config.names('listeners'))}"
            )
    if (
        not config.is_broker
        and config.optional_text("inter.broker.listener.name") is not None
        and config.inter_broker_listener_name in config.controller_listener_names
    ):
        raise ConfigError(
            f"inter.broker.listener.name={config.inter_broker_listener_name} must not be one of "
            f"controller.listener.names={names}"
        )


def _check_broker_listeners(config: NodeValues) -> None:
    advertised = [endpoint.listener for endpoint in config.advertised_listeners]
    listening = [endpoint.listener for endpoint in config.listeners]
    if not advertised:
        raise ConfigError(
            "process.roles contains broker, so at least one advertised listener must not be in "
            "controller.listener.names"
        )
    if config.inter_broker_listener_name not in advertised:
        raise ConfigError(
            f"inter.broker.listener.name: {config.inter_broker_listener_name} must be one of the "
            f"advertised listeners, which are {','.join(advertised)}"
        )
    for name in advertised:
        if name not in listening:
            raise ConfigError(
                f"advertised.listeners: listener {name} must also be in listeners, which has "
                f"{','.join(listening)}"
            )


def check_cordoned_log_dirs(cordoned: Sequence[str], log_dirs: Sequence[str]) -> None:
    """Refuse cordoned paths that lead to no log directory (KIP-1066).

    Raises:
        ConfigError: `*` is not alone, or an entry is none of `log_dirs`.
    """
    if EVERY_DIRECTORY in cordoned:
        if len(cordoned) > 1:
            raise ConfigError(
                "When cordoned.log.dirs is set to *, it must not contain other values"
            )
        return
    missing = [path for path, name in match_paths(cordoned, log_dirs).items() if name is None]
    if missing:
        raise ConfigError(
            "All entries in cordoned.log.dirs must be present in log.dirs or log.dir. "
            f"Missing entries : {', '.join(missing)}"
        )


def check_cordon_watermarks(high: float, low: float) -> None:
    """Refuse watermarks that leave no room between them.

    Raises:
        ConfigError: names both.
    """
    if low >= high:
        raise ConfigError(
            f"{CORDON_LOW_WATERMARK}={low:g} must be less than {CORDON_HIGH_WATERMARK}={high:g}"
        )


def _check_advertised_hosts(config: NodeValues) -> None:
    for endpoint in (*config.advertised_listeners, *config.advertised_controller_listeners):
        if endpoint.host == WILDCARD_HOST:
            raise ConfigError(
                f"advertised.listeners: {endpoint.listener} cannot use {WILDCARD_HOST}, to which "
                "others cannot connect; give an address that they can reach"
            )


def _check_node_logins(config: NodeValues) -> None:
    _check_mechanism(
        config, config.inter_broker_listener_name, "sasl.mechanism.inter.broker.protocol"
    )
    if config.is_controller:
        _check_mechanism(
            config, config.controller_listener_names[0], "sasl.mechanism.controller.protocol"
        )


def _check_mechanism(config: NodeValues, name: str, key: str) -> None:
    """Refuse a mechanism by which this node logs in to others and that it does not serve."""
    protocol = config.security_protocols.get(name)
    if protocol is None or not protocol.has_sasl:
        return
    listener = ListenerConfig(config, name)
    mechanism, enabled = listener.text(key), listener.names("sasl.enabled.mechanisms")
    if mechanism not in enabled:
        raise ConfigError(
            f"{key}={mechanism} must be among "
            f"{listener.key_name('sasl.enabled.mechanisms')}={','.join(enabled)}"
        )


def _check_connections(config: NodeValues) -> None:
    queued_bytes = config.integer("queued.max.request.bytes")
    request_bytes = config.integer("socket.request.max.bytes")
    if 0 < queued_bytes < request_bytes:
        raise ConfigError(
            f"queued.max.request.bytes={queued_bytes} must be at least "
            f"socket.request.max.bytes={request_bytes}"
        )
    addresses = parse_address_limits(config.text("max.connections.per.ip.overrides"))
    if config.integer("max.connections.per.ip") == 0 and not addresses:
        raise ConfigError(
            "max.connections.per.ip=0 refuses every connection unless "
            "max.connections.per.ip.overrides is set"
        )
    delay_ms = config.integer("connection.failed.authentication.delay.ms")
    idle_ms = config.integer("connections.max.idle.ms")
    if 0 <= idle_ms <= delay_ms:
        raise ConfigError(
            f"connection.failed.authentication.delay.ms={delay_ms} must be less than "
            f"connections.max.idle.ms={idle_ms}"
        )


def _check_codecs(config: NodeValues) -> None:
    for key in (
        "offsets.topic.compression.codec",
        "share.coordinator.state.topic.compression.codec",
    ):
        if not 0 <= config.integer(key) <= _LAST_CODEC:
            raise ConfigError(
                f"{key}={config.integer(key)} is not a codec: use 0 (none), 1 (gzip), 2 (snappy), "
                "3 (lz4) or 4 (zstd)"
            )


def _check_groups(config: NodeValues) -> None:
    """Refuse limits that contradict each other, and unknown assignors and protocols.

    Raises:
        ConfigError: names the keys and their values.
    """
    for name in _BOUNDED:
        kind, _, rest = name.partition(".")
        low, value = f"group.{kind}.min.{rest}", f"group.{name}"
        high = f"group.{kind}.max.{rest}"
        _check_order(config, low, high)
        _check_order(config, low, value)
        _check_order(config, value, high)
    for kind in ("consumer", "share", "streams"):
        heartbeat, session = (
            f"group.{kind}.heartbeat.interval.ms",
            f"group.{kind}.session.timeout.ms",
        )
        if config.integer(heartbeat) >= config.integer(session):
            raise ConfigError(
                f"{heartbeat}={config.integer(heartbeat)} must be less than "
                f"{session}={config.integer(session)}"
            )
    _check_order(config, "group.streams.num.standby.replicas", "group.streams.max.standby.replicas")
    _check_order(config, "group.share.max.size", "group.share.max.share.sessions")
    _check_assignors(config)
    protocols = config.names("group.coordinator.rebalance.protocols")
    if "classic" not in protocols:
        raise ConfigError(
            f"group.coordinator.rebalance.protocols={','.join(protocols)} must contain classic"
        )


def _check_order(config: NodeValues, low: str, high: str) -> None:
    if config.integer(low) > config.integer(high):
        raise ConfigError(
            f"{high}={config.integer(high)} must be at least {low}={config.integer(low)}"
        )


def _check_assignors(config: NodeValues) -> None:
    for key, known in _ASSIGNORS.items():
        for name in config.names(key):
            if name not in known:
                raise ConfigError(
                    f"{key}: unknown assignor {name}; use {', '.join(known)} (Java classes cannot "
                    "be loaded)"
                )
