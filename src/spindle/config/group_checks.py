"""Rules between the keys of group coordinators (KIP-848, KIP-932, KIP-1071)."""

from typing import TYPE_CHECKING, Final

from spindle.common.errors import ConfigError

if TYPE_CHECKING:
    from spindle.config.node_config import NodeConfig

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


def check_groups(config: "NodeConfig") -> None:
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


def _check_order(config: "NodeConfig", low: str, high: str) -> None:
    if config.integer(low) > config.integer(high):
        raise ConfigError(
            f"{high}={config.integer(high)} must be at least {low}={config.integer(low)}"
        )


def _check_assignors(config: "NodeConfig") -> None:
    for key, known in _ASSIGNORS.items():
        for name in config.names(key):
            if name not in known:
                raise ConfigError(
                    f"{key}: unknown assignor {name}; use {', '.join(known)} (Java classes cannot "
                    "be loaded)"
                )
