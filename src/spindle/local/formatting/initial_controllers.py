"""The controllers of a new dynamic quorum, as given to `--initial-controllers` (KIP-853)."""

from typing import NamedTuple

from spindle.common.errors import ConfigError
from spindle.common.ids import Endpoint
from spindle.common.uuids import Uuid, UuidSource, parse_uuid
from spindle.config.node_config import NodeConfig
from spindle.raft.voters import ReplicaKey, Voter, VoterSet


class InitialController(NamedTuple):
    """One voter of a new quorum."""

    node_id: int
    host: str
    port: int
    directory_id: Uuid


def parse_initial_controllers(text: str) -> tuple[InitialController, ...]:
    """Return the voters of `id@host:port:directory` entries, ascending by id.

    Raises:
        ConfigError: an entry cannot be parsed, an id is given twice, or there is none.
    """
    controllers = [_parse(entry.strip()) for entry in text.strip().split(",") if entry.strip()]
    if not controllers:
        raise ConfigError("No voters given.")
    by_id: dict[int, InitialController] = {}
    for controller in controllers:
        if controller.node_id in by_id:
            raise ConfigError(f"Node id {controller.node_id} was specified more than once.")
        by_id[controller.node_id] = controller
    return tuple(by_id[node_id] for node_id in sorted(by_id))


def _parse(entry: str) -> InitialController:
    form = f"'{entry}' must be of the form id@host:port:directory-id."
    id_text, at, rest = entry.partition("@")
    if not at:
        raise ConfigError(f"No @ found in dynamic voter string. {form}")
    if not id_text.isdecimal():
        raise ConfigError(f"Failed to parse node id in dynamic voter string. {form}")
    host, rest = _split_host(rest, form)
    port_text, colon, directory_text = rest.partition(":")
    if not colon:
        raise ConfigError(f"No colon following port could be found. {form}")
    if not port_text.isdecimal():
        raise ConfigError(f"Failed to parse port in dynamic voter string. {form}")
    if int(port_text) > 65535:
        raise ConfigError(f"Invalid port {port_text} in dynamic voter string. {form}")
    try:
        directory_id = parse_uuid(directory_text)
    except ValueError as error:
        raise ConfigError(
            f"Failed to parse directory ID in dynamic voter string. {form} {error}"
        ) from None
    return InitialController(int(id_text), host, int(port_text), directory_id)


def _split_host(text: str, form: str) -> tuple[str, str]:
    """Return the host, without the brackets of an IPv6 address, and the text after its colon."""
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket:
            raise ConfigError(
                f"Hostname began with left bracket, but no right bracket was found. {form}"
            )
        if not rest.startswith(":"):
            raise ConfigError(f"Port section must start with a colon. {form}")
        return host, rest[1:]
    host, colon, rest = text.partition(":")
    if not colon or not host:
        raise ConfigError(f"No colon following hostname could be found. {form}")
    return host, rest


def standalone_controller(config: NodeConfig, new_uuid: UuidSource) -> InitialController:
    """Return this node as the only voter.

    Raises:
        ConfigError: this node is no controller.
    """
    if not config.is_controller:
        raise ConfigError("You can only use --standalone on a controller.")
    endpoint = config.advertised_controller_listeners[0]
    return InitialController(
        config.node_id, endpoint.host or "localhost", endpoint.port, new_uuid()
    )


def voter_set(controllers: tuple[InitialController, ...], listener: str) -> VoterSet:
    """Return the voter set of the quorum; all voters are reached by one listener."""
    return VoterSet(
        Voter(
            ReplicaKey(controller.node_id, controller.directory_id),
            (Endpoint(listener, controller.host, controller.port),),
        )
        for controller in controllers
    )
