"""The entities whose configuration a `kafka-configs` command shows or changes."""

import socket
from dataclasses import dataclass
from typing import Final

from spindle.cli.tools.failures import WrongOptions
from spindle.cli.tools.options import WHERE_IS_THE_CLUSTER, Options

TOPICS: Final = "topics"
CLIENTS: Final = "clients"
USERS: Final = "users"
BROKERS: Final = "brokers"
IPS: Final = "ips"
CLIENT_METRICS: Final = "client-metrics"
GROUPS: Final = "groups"
BROKER_LOGGERS: Final = "broker-loggers"

_TYPES: Final = (BROKER_LOGGERS, TOPICS, CLIENTS, USERS, BROKERS, IPS, CLIENT_METRICS, GROUPS)
_WITH_DEFAULT: Final = (USERS, CLIENTS, BROKERS, IPS)
DEFAULT_NAME: Final = ""
"""The name that stands for the default of a type."""

ENTITY_FLAGS: Final = (
    ("topic", TOPICS),
    ("client", CLIENTS),
    ("user", USERS),
    ("broker", BROKERS),
    ("broker-logger", BROKER_LOGGERS),
    ("ip", IPS),
    ("client-metrics", CLIENT_METRICS),
    ("group", GROUPS),
)
_DEFAULT_FLAGS: Final = (
    ("client-defaults", CLIENTS),
    ("user-defaults", USERS),
    ("broker-defaults", BROKERS),
    ("ip-defaults", IPS),
)


@dataclass(frozen=True, slots=True)
class Entities:
    """Types and names in the order given; there may be fewer names than types."""

    types: tuple[str, ...]
    names: tuple[str, ...]

    @property
    def first_name(self) -> str | None:
        """The name that belongs to the first type, None for all of them."""
        return self.names[0] if self.names else None


def entities_of(options: Options) -> Entities:
    """Return the entities that the options name."""
    types = options.all("entity-type")
    names = [
        DEFAULT_NAME if option.name == "entity-default" else option.value or DEFAULT_NAME
        for option in options.given
        if option.name in ("entity-name", "entity-default")
    ]
    for flag, kind in ENTITY_FLAGS:
        if options.has(flag):
            types.append(kind)
            names.append(options.text(flag))
    for flag, kind in _DEFAULT_FLAGS:
        if options.has(flag):
            types.append(kind)
            names.append(DEFAULT_NAME)
    return Entities(tuple(types), tuple(names))


def check_entities(options: Options, entities: Entities) -> None:
    """Refuse combinations of options that name no entity.

    Raises:
        WrongOptions: names what is missing or superfluous.
    """
    _check_types(entities.types)
    _check_flags(options)
    by_server, by_controller = map(options.has, ("bootstrap-server", "bootstrap-controller"))
    if not by_server and not by_controller:
        raise WrongOptions(
            "Either --bootstrap-server or --bootstrap-controller must be specified.",
            plainly=WHERE_IS_THE_CLUSTER,
        )
    if by_server and by_controller:
        raise WrongOptions(
            "Only one of --bootstrap-server or --bootstrap-controller can be specified."
        )
    _check_names(entities)
    if options.has("describe"):
        _check_describe(options, entities)
    else:
        _check_alter(entities)


def _check_types(types: tuple[str, ...]) -> None:
    twice = sorted({kind for kind in types if types.count(kind) > 1})
    if twice:
        raise WrongOptions(f"Duplicate entity type(s) specified: {','.join(twice)}")
    for kind in types:
        if kind not in _TYPES:
            raise WrongOptions(
                f"Invalid entity type {kind}, the entity type must be one of {', '.join(_TYPES)} "
                "with a --bootstrap-server or --bootstrap-controller argument"
            )
    if not types:
        raise WrongOptions("At least one entity type must be specified")
    if len(types) > 1 and sorted(types) != [CLIENTS, USERS]:
        raise WrongOptions("Only 'users' and 'clients' entity types may be specified together")


def _check_flags(options: Options) -> None:
    general = map(options.has, ("entity-name", "entity-type", "entity-default"))
    special = (options.has(flag) for flag, _ in (*ENTITY_FLAGS, *_DEFAULT_FLAGS))
    if any(general) and any(special):
        raise WrongOptions(
            "--entity-{type,name,default} should not be used in conjunction with specific entity "
            "flags"
        )


def _check_names(entities: Entities) -> None:
    kind, name = entities.types[0], entities.first_name
    if not name:
        return
    if kind in (BROKERS, BROKER_LOGGERS) and not name.lstrip("+-").isdecimal():
        raise WrongOptions(
            f"The entity name for {kind} must be a valid integer broker id, but it is: {name}"
        )
    if kind == IPS and not _is_address(name):
        raise WrongOptions(
            f"The entity name for {kind} must be a valid IP or resolvable host, but it is: {name}"
        )


def _is_address(name: str) -> bool:
    try:
        socket.getaddrinfo(name, None)
    except (OSError, UnicodeError):
        return False
    return True


def _check_describe(options: Options, entities: Entities) -> None:
    kind = entities.types[0]
    if kind not in _WITH_DEFAULT and options.has("entity-default"):
        raise WrongOptions(f"--entity-default must not be specified with --describe of {kind}")
    if kind == BROKER_LOGGERS and not entities.first_name:
        raise WrongOptions(f"An entity name must be specified with --describe of {kind}")


def _check_alter(entities: Entities) -> None:
    has_name = any(entities.names)
    if any(kind in _WITH_DEFAULT for kind in entities.types):
        if not entities.names:
            raise WrongOptions(
                "An entity-name or default entity must be specified with --alter of users, "
                "clients, brokers or ips"
            )
    elif not has_name:
        raise WrongOptions(
            f"An entity name must be specified with --alter of {','.join(entities.types)}"
        )
