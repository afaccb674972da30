"""The first lines of a node's log: its identity, its listeners, its directories."""

import platform
import sys
from collections.abc import Iterator, Sequence

from spindle import __version__
from spindle.common.ids import Endpoint
from spindle.common.native import native_text
from spindle.common.text import size_text
from spindle.common.uuids import uuid_text
from spindle.config.broker_keys.spindle import NATIVE_ENABLE
from spindle.config.node_config import NodeConfig
from spindle.disks.identity import DirectoryIdentities
from spindle.metadata.image import MetadataImage
from spindle.runtime.broker.broker_server import BrokerServer
from spindle.runtime.network.listener import Listener


def identity_lines(config: NodeConfig, cluster_id: str) -> Iterator[str]:
    """Yield the lines about identity and version, which are logged before anything is opened."""
    loop = "uvloop" if "uvloop" in sys.modules else "asyncio"
    roles = ", ".join(config.process_roles)
    yield f"Spindle {__version__}, Python {platform.python_version()}, {loop}"
    yield native_text(config.flag(NATIVE_ENABLE))
    yield f"node {config.node_id} ({roles}) of cluster {cluster_id}"


def listener_lines(listeners: Sequence[Listener], advertised: Sequence[Endpoint]) -> Iterator[str]:
    """Yield the lines about listeners, with the bound ports."""
    names = {endpoint.listener: endpoint for endpoint in advertised}
    for listener in listeners:
        line = f"listener {listener.name} on {listener.host or '*'}:{listener.port}"
        line += f" ({listener.security.protocol.name})"
        known = names.get(listener.name)
        yield f"{line}, advertised as {known.host}:{known.port}" if known else line


def directory_lines(
    identities: DirectoryIdentities, broker: BrokerServer | None, metadata_log_dir: str
) -> Iterator[str]:
    """Yield one line for each directory that is online."""
    for path, directory_id in identities.directory_ids.items():
        if path in identities.offline:
            continue
        line = f"log directory {path}, id {uuid_text(directory_id)}"
        directory = broker.replicas.directory_at(path) if broker is not None else None
        if broker is not None and directory is not None:
            partitions = broker.replicas.in_directory(directory)
            size_bytes = sum(partition.log.size_bytes for partition in partitions)
            line += f": {len(partitions)} partitions, {size_text(size_bytes)}"
            if broker.replicas.is_cordoned(directory):
                line += ", cordoned"
        if path == metadata_log_dir:
            line += ", holds the metadata log"
        yield line


def level_line(image: MetadataImage) -> str:
    """Return a line with the finalized features; they decide the formats of records."""
    levels = ", ".join(f"{name} {level}" for name, level in sorted(image.features.levels.items()))
    return f"features: {levels or 'none'}; metadata up to offset {image.provenance.last_offset}"
