"""Formatting the new disks of a node, as `spindle storage format --ignore-formatted` does."""

import os
import time

from spindle.cli.failure import CommandFailed
from spindle.cli.property_file import load_node_config
from spindle.cli.storage.format_options import FormatOptions, format_request
from spindle.cli.storage.formatting import format_directories
from spindle.common.filesystem import OsFileSystem
from spindle.common.uuids import Uuid, uuid_from_random
from spindle.disks.identity import load_ensemble
from spindle.testing.cluster.errors import ClusterError


def format_unformatted(property_file: str) -> None:
    """Format the directories of a node that are not formatted yet, for the cluster of the others.

    Raises:
        ClusterError: no other directory is formatted, or one cannot be written.
    """
    config = load_node_config(property_file)
    known = load_ensemble(OsFileSystem(), config.log_dirs).formatted.values()
    cluster_ids = [
        properties.cluster_id for properties in known if properties.cluster_id is not None
    ]
    if not cluster_ids:
        raise ClusterError(f"no directory of {property_file} tells the cluster id")
    options = FormatOptions(cluster_ids[0], ignore_formatted=True, no_initial_controllers=True)
    try:
        request = format_request(config, options, _new_uuid, os.urandom)
        now_ms = time.time_ns() // 1_000_000
        format_directories(request, OsFileSystem(), _new_uuid, now_ms, lambda line: None)
    except CommandFailed as error:
        raise ClusterError(str(error)) from None


def _new_uuid() -> Uuid:
    return uuid_from_random(os.urandom)
