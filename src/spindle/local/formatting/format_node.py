"""Formatting the directories of a node on this machine."""

import os
import time
from collections.abc import Callable

from spindle.common.filesystem import OsFileSystem
from spindle.common.uuids import Uuid, uuid_from_random
from spindle.config.node_config import NodeConfig
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
