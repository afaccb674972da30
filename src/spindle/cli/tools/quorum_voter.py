"""The controller that a property file describes, for `add-controller`."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from spindle.cli.tools.failures import ToolFailed
from spindle.common.filesystem import OsFileSystem
from spindle.common.ids import Endpoint
from spindle.common.security_protocol import SecurityProtocol
from spindle.common.uuids import Uuid
from spindle.config.endpoints import listener_name, parse_listeners
from spindle.disks.identity import load_ensemble

_HINT: Final = "Is this a valid controller configuration file?"
_PLAINTEXT: Final = SecurityProtocol.PLAINTEXT


class JoiningVoter(NamedTuple):
    """A controller: node id, directory id, and listeners as name, host and port."""

    node_id: int
    directory_id: Uuid
    listeners: tuple[tuple[str, str, int], ...]


def joining_voter(properties: Mapping[str, str]) -> JoiningVoter:
    """Return the controller of a property file whose directories lie on this machine.

    Raises:
        ToolFailed: the file is not that of a controller, or its directory is not formatted.
        ConfigError: a listener cannot be read.
    """
    directory = _metadata_directory(properties)
    ensemble = load_ensemble(OsFileSystem(), [directory])
    meta_properties = ensemble.formatted.get(directory)
    if meta_properties is None:
        raise ToolFailed(f"Unable to read meta.properties from {directory}")
    if meta_properties.directory_id is None:
        raise ToolFailed(f"No directory id found in {directory}")
    return JoiningVoter(_node_id(properties), meta_properties.directory_id, _listeners(properties))


def _node_id(properties: Mapping[str, str]) -> int:
    text = properties.get("node.id")
    if text is None:
        raise ToolFailed(f"node.id not found in configuration file. {_HINT}")
    if not text.strip().isdecimal():
        raise ToolFailed(f"node.id was negative in configuration file. {_HINT}")
    if "controller" not in properties.get("process.roles", ""):
        raise ToolFailed(
            f"process.roles did not contain 'controller' in configuration file. {_HINT}"
        )
    return int(text)


def _metadata_directory(properties: Mapping[str, str]) -> str:
    directory = properties.get("metadata.log.dir") or properties.get("log.dirs", "").split(",")[0]
    if not directory.strip():
        raise ToolFailed(f"Neither metadata.log.dir nor log.dirs were found. {_HINT}")
    return directory.strip()


def _listeners(properties: Mapping[str, str]) -> tuple[tuple[str, str, int], ...]:
    names = properties.get("controller.listener.names")
    if names is None:
        raise ToolFailed(f"controller.listener.names was not found. {_HINT}")
    endpoints: dict[str, Endpoint] = {}
    for key in ("listeners", "advertised.listeners"):
        entries = [name.strip() for name in properties.get(key, "").split(",") if name.strip()]
        protocols = {listener_name(entry.partition("://")[0]): _PLAINTEXT for entry in entries}
        for endpoint in parse_listeners(key, entries, protocols, distinct_ports=False):
            endpoints[endpoint.listener] = endpoint
    advertised = []
    for name in names.split(","):
        known = endpoints.get(listener_name(name.strip()))
        if known is None:
            raise ToolFailed(f"Cannot find information about controller listener name: {name}")
        advertised.append((known.listener, known.host or "localhost", known.port))
    return tuple(advertised)
