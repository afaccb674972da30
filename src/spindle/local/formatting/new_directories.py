"""Formatting the new disks of a node, as `spindle storage format --ignore-formatted` does."""

from spindle.common.filesystem import OsFileSystem
from spindle.config.node_config import load_node_config
from spindle.disks.identity import load_ensemble
from spindle.local.errors import ClusterError, FormatError
from spindle.local.formatting.format_node import format_node
from spindle.local.formatting.format_options import FormatOptions


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
