"""The metadata log of a node: its batches, and the state that its records make.

Both are read from the files while the node runs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spindle.cli.tools.dump_records import metadata_record
from spindle.cli.tools.dump_segment import SegmentDump

FOLDER = "__cluster_metadata-0"
NO_OPERATION = "NO_OP_RECORD"

_BASE_OFFSET = re.compile(r"baseOffset: (\d+)")
_CONTROL = re.compile(r"headerKeys: \[\] (\w+):? (\{.*)")
_UNASSIGNED = "AAAAAAAAAAAAAAAAAAAAAA"
_WAITING = "AAAAAAAAAAAAAAAAAAAAAQ"


@dataclass(slots=True)
class Entry:
    """A record: its type such as PARTITION_RECORD, or of a control record such as LeaderChange."""

    kind: str
    version: int
    data: dict[str, Any]


@dataclass(slots=True)
class Batch:
    """Records that were written together."""

    base_offset: int
    entries: list[Entry] = field(default_factory=list)


def read_batches(folder: Path, first_offset: int = 0) -> list[Batch]:
    """Return the batches of a metadata log from an offset on, without records of no operation."""
    dump = SegmentDump(with_records=True, with_numbers=True, decoder=metadata_record)
    read: list[Batch] = []
    for segment in sorted(folder.glob("*.log")):
        for line in dump.lines(segment.read_bytes()):
            if base_offset := _BASE_OFFSET.match(line):
                read.append(Batch(int(base_offset[1])))
            elif entry := _entry(line):
                read[-1].entries.append(entry)
    return [batch for batch in read if batch.entries and batch.base_offset >= first_offset]


def read_snapshot(path: Path) -> list[Entry]:
    """Return the records of a snapshot, control records included."""
    dump = SegmentDump(with_records=True, with_numbers=True, decoder=metadata_record)
    return [entry for line in dump.lines(path.read_bytes()) if (entry := _entry(line))]


def _entry(line: str) -> Entry | None:
    _, is_record, text = line.partition("payload: ")
    if is_record:
        record = json.loads(text)
        if record["type"] == NO_OPERATION:
            return None
        return Entry(record["type"], record["version"], record["data"])
    if control := _CONTROL.search(line):
        data = json.loads(control[2])
        return Entry(control[1], data.pop("version"), data)
    return None


@dataclass(slots=True)
class State:
    """Brokers and partitions after the records of a log.

    Attributes:
        topics: names by id.
        partitions: the fields of PartitionRecord by topic id and number.
        brokers: the fields of RegisterBrokerRecord and of its changes by id of the broker.
        levels: of the features by name.
    """

    topics: dict[str, str] = field(default_factory=dict)
    partitions: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)
    brokers: dict[int, dict[str, Any]] = field(default_factory=dict)
    levels: dict[str, int] = field(default_factory=dict)

    def replay(self, batches: Iterable[Batch]) -> None:
        """Apply the records of these batches."""
        for batch in batches:
            for entry in batch.entries:
                self._apply(entry.kind, entry.data)

    def partition(self, topic: str, number: int = 0) -> dict[str, Any]:
        """Return the fields of a partition of the newest topic of a name; empty without one."""
        ids = [topic_id for topic_id, name in self.topics.items() if name == topic]
        return self.partitions.get((ids[-1], number), {}) if ids else {}

    def why_unsettled(self, live: set[int]) -> str:
        """Return what live brokers still have to do, or the first such thing; empty if nothing."""
        for number in sorted(live):
            broker = self.brokers.get(number, {})
            if broker.get("fenced", True):
                return f"broker {number} is fenced"
            if self.levels.get("metadata.version", 0) >= 30 and "cordonedLogDirs" not in broker:
                return f"broker {number} has reported no cordons"
        for number, broker in self.brokers.items():
            if number not in live and not broker["fenced"]:
                return f"broker {number} is not fenced"
        for (topic_id, number), fields in self.partitions.items():
            if reason := self._why_open(fields, live):
                return f"{self.topics[topic_id]}-{number} {reason}"
        return ""

    def _why_open(self, fields: dict[str, Any], live: set[int]) -> str:
        if fields["addingReplicas"] or fields["removingReplicas"]:
            return "is being reassigned"
        for broker, directory in zip(fields["replicas"], fields["directories"], strict=True):
            online = self.brokers.get(broker, {}).get("logDirs") or []
            if broker not in live:
                continue
            if directory in (_WAITING, _UNASSIGNED) and not fields.get("wasReassigned"):
                return f"waits for a directory of {broker}"
            if directory in online and broker not in fields["isr"] and fields["isr"]:
                return f"has {broker} out of sync"
        return ""

    def _apply(self, kind: str, data: dict[str, Any]) -> None:
        match kind:
            case "TOPIC_RECORD":
                self.topics[data["topicId"]] = data["name"]
            case "REMOVE_TOPIC_RECORD":
                del self.topics[data["topicId"]]
                for place in [place for place in self.partitions if place[0] == data["topicId"]]:
                    del self.partitions[place]
            case "PARTITION_RECORD":
                self.partitions[data["topicId"], data["partitionId"]] = {"directories": [], **data}
            case "PARTITION_CHANGE_RECORD":
                changed = {key: value for key, value in data.items() if value is not None}
                # Kafka may leave the directory of a replica that was added quickly unassigned.
                if "replicas" in changed:
                    changed["wasReassigned"] = True
                self.partitions[data["topicId"], data["partitionId"]].update(changed)
            case "REGISTER_BROKER_RECORD":
                self.brokers[data["brokerId"]] = dict(data)
            case "BROKER_REGISTRATION_CHANGE_RECORD":
                changed = {key: value for key, value in data.items() if value or key[0] == "c"}
                if "fenced" in changed:
                    changed["fenced"] = changed["fenced"] > 0
                self.brokers[data["brokerId"]].update(changed)
            case "UNREGISTER_BROKER_RECORD":
                self.brokers.pop(data["brokerId"], None)
            case "FEATURE_LEVEL_RECORD":
                self.levels[data["name"]] = data["featureLevel"]
