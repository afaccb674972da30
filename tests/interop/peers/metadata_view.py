"""The directories of brokers and replicas as a controller has recorded them.

Kafka's DumpLogSegments reads its metadata log.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from peers.java_tools import JavaTools
from peers.node import Node

_SEGMENT = "__cluster_metadata-0/00000000000000000000.log"


@dataclass(slots=True)
class Directories:
    """The directories of the brokers and of the replicas, by ids as Kafka prints them."""

    online: dict[int, list[str]] = field(default_factory=dict)
    cordoned: dict[int, list[str]] = field(default_factory=dict)
    replicas: dict[tuple[str, int], dict[int, str]] = field(default_factory=dict)
    """Directory by broker, by topic and partition."""


def directories(tools: JavaTools, controller: Node) -> Directories:
    """Replay the metadata log of a controller that has made no snapshot."""
    directories = Directories()
    topics: dict[str, str] = {}
    for kind, data in _records(tools, controller):
        match kind:
            case "TOPIC_RECORD":
                topics[data["topicId"]] = data["name"]
            case "REGISTER_BROKER_RECORD" | "BROKER_REGISTRATION_CHANGE_RECORD":
                # A change without directories has another reason.
                if data.get("logDirs"):
                    directories.online[data["brokerId"]] = data["logDirs"]
                if "cordonedLogDirs" in data:
                    directories.cordoned[data["brokerId"]] = data["cordonedLogDirs"]
            case "PARTITION_RECORD" | "PARTITION_CHANGE_RECORD":
                place = (topics[data["topicId"]], data["partitionId"])
                brokers = data.get("replicas") or list(directories.replicas[place])
                if data.get("directories"):
                    directories.replicas[place] = dict(
                        zip(brokers, data["directories"], strict=True)
                    )
                elif "replicas" in data:
                    former = directories.replicas[place]
                    directories.replicas[place] = {
                        broker: former.get(broker, "") for broker in brokers
                    }
    return directories


def directory_id(node: Node, number: int) -> str:
    """Return the id in the `meta.properties` of a log directory, counted from 0."""
    lines = (node.log_dirs[number] / "meta.properties").read_text().splitlines()
    (directory_id,) = [line.partition("=")[2] for line in lines if line.startswith("directory.id=")]
    return directory_id


def _records(tools: JavaTools, controller: Node) -> Iterator[tuple[str, dict[str, Any]]]:
    path = controller.log_dirs[0] / _SEGMENT
    dumped = tools.run("dump-log", "--cluster-metadata-decoder", "--files", str(path)).check()
    for line in dumped.lines:
        _, marker, text = line.partition("payload: ")
        if marker and text.startswith("{"):
            record = json.loads(text)
            yield record["type"], record["data"]
