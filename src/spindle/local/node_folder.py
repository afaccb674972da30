"""The folder of a cluster on disk: made and formatted once, found again later."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from spindle.common.errors import ConfigError
from spindle.common.filesystem import OsFileSystem
from spindle.common.uuids import uuid_text
from spindle.config.node_config import NodeConfig, load_node_config
from spindle.config.properties import format_properties
from spindle.disks.admission import plain_path
from spindle.disks.identity import load_ensemble
from spindle.local.cluster_spec import LOG_FILE, PROPERTY_FILE, ClusterSpec, node_properties
from spindle.local.errors import ClusterError
from spindle.local.formatting.format_node import format_node, random_uuid
from spindle.local.formatting.format_options import FormatOptions
from spindle.local.security import new_security
from spindle.local.tcp_ports import taken_ports
from spindle.log.formats.changed_log_dirs import read_changed_log_dirs
from spindle.runtime.disks.directory_lock import LOCK_FILE, DirectoryLock


@dataclass(frozen=True, slots=True)
class NodeFolder:
    """A node: its property file and the configuration in it."""

    property_file: Path
    config: NodeConfig

    @property
    def node_id(self) -> int:
        return self.config.node_id

    @property
    def log_file(self) -> Path:
        return self.property_file.with_name(LOG_FILE)

    @property
    def client_address(self) -> str | None:
        """The address for clients; None for a controller."""
        if not self.config.is_broker:
            return None
        endpoint = self.config.advertised_listeners[0]
        return f"{endpoint.host}:{endpoint.port}"

    @property
    def log_dirs(self) -> list[str]:
        """The log directories that the node uses: without removed ones, with those added later."""
        try:
            changed = read_changed_log_dirs(OsFileSystem(), self.config.metadata_log_dir)
        except (ConfigError, OSError):
            # The node itself says what is wrong.
            return list(self.config.log_dirs)
        return changed.merged(self.config.log_dirs)

    @property
    def controller_address(self) -> str | None:
        """The address of the controller listener; None for a broker that is no controller."""
        if not self.config.is_controller:
            return None
        endpoint = self.config.controller_listeners[0]
        return f"{endpoint.host}:{endpoint.port}"


def make_cluster(spec: ClusterSpec, folder: Path, ports: list[int]) -> list[NodeFolder]:
    """Format the directories of a new cluster, then write its property files.

    The first node's file comes last: without it the folder holds no cluster.

    Raises:
        ClusterError: the folder holds remains of a cluster, or cannot be written.
        FormatError: a directory cannot be written.
        ConfigError: an override cannot be used.
    """
    with _private_files() if spec.is_secure else nullcontext():
        return _make_cluster(spec, folder, ports)


@contextmanager
def _private_files() -> Iterator[None]:
    """Let nobody but the user read what is written here: keys, and files with passwords."""
    mask = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(mask)


def _make_cluster(spec: ClusterSpec, folder: Path, ports: list[int]) -> list[NodeFolder]:
    _check_path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ClusterError(f"cannot make {folder}: {error.strerror}") from None
    security = new_security(folder) if spec.is_secure else None
    if security is not None:
        security.write_certificates()
        spec = replace(spec, overrides={**security.node_properties, **spec.overrides})
    files = node_properties(spec, folder, ports)
    configs = {
        path: NodeConfig.from_properties(properties, must_run=True)
        for path, properties in files.items()
    }
    for config in configs.values():
        ensemble = load_ensemble(OsFileSystem(), config.log_dirs)
        if ensemble.failed:
            reasons = "; ".join(ensemble.failed.values())
            raise ClusterError(f"cannot read directories for a new cluster: {reasons}")
        if ensemble.formatted:
            raise ClusterError(
                f"{next(iter(ensemble.formatted))} is formatted, but {folder} holds no cluster "
                "that was made to the end; remove it, or take another folder"
            )
    nodes = [NodeFolder(path, config) for path, config in configs.items()]
    if security is not None:
        security.write_clients(bootstrap_servers(nodes))
    _format(configs, security.scram if security else ())
    for path in reversed(files):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            OsFileSystem().write_atomically(str(path), format_properties(files[path]).encode())
        except OSError as error:
            raise ClusterError(f"cannot write {path}: {error.strerror}") from None
    return nodes


def _check_path(folder: Path) -> None:
    """Refuse a folder whose directories log.dirs cannot name.

    Raises:
        ClusterError: its path has a comma or a control character.
    """
    try:
        plain_path(os.path.join(os.path.abspath(folder), "disk-1"))
    except ConfigError as error:
        raise ClusterError(f"cannot use the folder {folder}: {error}") from None


def bootstrap_servers(nodes: Sequence[NodeFolder]) -> str:
    """Return the addresses of all brokers, separated by commas."""
    return ",".join(node.client_address for node in nodes if node.client_address is not None)


def _format(configs: Mapping[Path, NodeConfig], scram: tuple[str, ...]) -> None:
    """Format all directories with one cluster id and these users; the controllers are the voters
    of a dynamic quorum (KIP-853).
    """
    voters = ",".join(
        f"{config.node_id}@{endpoint.host}:{endpoint.port}:{uuid_text(random_uuid())}"
        for config in configs.values()
        for endpoint in config.controller_listeners[:1]
    )
    options = FormatOptions(
        cluster_id=uuid_text(random_uuid()), initial_controllers=voters, scram=scram
    )
    for config in configs.values():
        format_node(config, options)


def find_cluster(folder: Path) -> list[NodeFolder]:
    """Return the nodes of an earlier run, ascending by node id; none for a new folder.

    Raises:
        ClusterError: a property file cannot be used, or the directories belong to different
            clusters.
    """
    paths = [folder / PROPERTY_FILE]
    if not paths[0].exists():
        paths = list(folder.glob(f"node-*/{PROPERTY_FILE}"))
        if not any(path.parent.name == "node-1" for path in paths):
            return []
    nodes = [_node_folder(path) for path in paths]
    nodes.sort(key=lambda node: node.node_id)
    _check_ids(nodes)
    return nodes


def _node_folder(property_file: Path) -> NodeFolder:
    try:
        return NodeFolder(property_file, load_node_config(str(property_file), must_run=True))
    except ConfigError as error:
        named = "" if str(property_file) in str(error) else f"{property_file}: "
        raise ClusterError(f"{named}{error}") from None


def _check_ids(nodes: list[NodeFolder]) -> None:
    """Refuse directories of different clusters: their node would wait for its quorum forever."""
    owners: dict[str, str] = {}
    for node in nodes:
        for path, identity in load_ensemble(
            OsFileSystem(), (*node.config.log_dirs, node.config.metadata_log_dir)
        ).formatted.items():
            # A node that reads no cluster id in a file gives the reason itself.
            if identity.cluster_id is not None:
                owners.setdefault(identity.cluster_id, path)
    if len(owners) > 1:
        where = ", ".join(f"{path} to {cluster_id}" for cluster_id, path in owners.items())
        raise ClusterError(f"the directories belong to different clusters: {where}")


def check_can_start(nodes: list[NodeFolder]) -> None:
    """Refuse to start if a node runs, or a port is taken: clients know the ports of the cluster.

    Raises:
        ClusterError: a node runs already, or another process listens on a port of it.
    """
    for node_id in nodes_in_use(nodes):
        node = next(node for node in nodes if node.node_id == node_id)
        where = node.client_address or node.controller_address
        raise ClusterError(
            f"{node.property_file.parent}: node {node_id} of this cluster is running already, at "
            f"{where}; stop it, or take another folder"
        )
    for node in nodes:
        for port in taken_ports([e.port for e in node.config.listeners if e.port]):
            raise ClusterError(
                f"node {node.node_id} needs port {port}, which is in use; change listeners in "
                f"{node.property_file}, or stop the program that listens there"
            )


def nodes_in_use(nodes: Sequence[NodeFolder]) -> list[int]:
    """Return the nodes that still run, because they were started again by hand."""
    return [node.node_id for node in nodes if any(map(_is_locked, node.config.log_dirs))]


def _is_locked(directory: str) -> bool:
    if not os.path.exists(os.path.join(directory, LOCK_FILE)):
        return False
    try:
        DirectoryLock(directory).release()
    except ConfigError:
        return True
    except OSError:
        return False
    return False


def cluster_id(nodes: Sequence[NodeFolder]) -> str:
    """Return the cluster id of the first readable directory.

    Raises:
        ClusterError: no directory of any node is formatted.
    """
    for node in nodes:
        properties = load_ensemble(OsFileSystem(), node.config.log_dirs).formatted.values()
        for identity in properties:
            return str(identity.cluster_id)
    raise ClusterError(f"no log directory below {nodes[0].property_file.parent} is formatted")
