"""Formatting the directories of a node on this machine, and its new disks later."""

import os
import time
from collections.abc import Callable

from spindle.common.filesystem import OsFileSystem
from spindle.common.uuids import Uuid, uuid_from_random
from spindle.config.node_config import NodeConfig, load_node_config
from spindle.disks.identity import load_ensemble
from spindle.local.errors import ClusterError, FormatError
from spindle.local.formatting.directories import format_directories
from spindle.local.formatting.format_options import FormatOptions, format_request


def random_uuid() -> Uuid:
    """Return a random id, for a cluster or a directory."""
    return uuid_from_random(os.urandom)


def format_node(
    config: NodeConfig,
    options: FormatOptions,
    report: Callable[[str], None] | None = None,
    *,
    shows_records: bool = False,
) -> None:
    """Format the directories of a node that are not formatted yet.

    Args:
        report: called with each line of the report of Kafka's tool.
        shows_records: the report begins with the first records of the metadata.

    Raises:
        ConfigError: an option cannot be used, or the directories belong to another cluster or node.
        FormatError: options and configuration contradict each other, a directory is formatted
            already, or one cannot be written.
    """
    request = format_request(config, options, random_uuid, os.urandom)
    now_ms = time.time_ns() // 1_000_000
    format_directories(
        request,
        OsFileSystem(),
        random_uuid,
        now_ms,
        report or (lambda line: None),
        shows_records=shows_records,
    )


def format_new_directories(property_file: str) -> None:
    """Format the unformatted directories of a node with the cluster id of its other directories.

    Raises:
        ConfigError: the property file cannot be used.
        ClusterError: no other directory is formatted, or one cannot be written.
    """
    config = load_node_config(property_file)
    known = load_ensemble(OsFileSystem(), config.log_dirs).formatted.values()
    cluster_ids = [
        properties.cluster_id for properties in known if properties.cluster_id is not None
    ]
    if not cluster_ids:
        raise ClusterError(
            f"no directory of {property_file} is formatted, so the cluster id is not known"
        )
    options = FormatOptions(cluster_ids[0], ignore_formatted=True, no_initial_controllers=True)
    try:
        format_node(config, options)
    except FormatError as error:
        raise ClusterError(str(error)) from None
