"""Apache Kafka's own metadata logs: can be replayed, and our decisions are the ones in them.

`recorded/*.jsonl` are the metadata logs of Apache Kafka 4.3.1 in five runs, one record a line:
[offset, base offset of its batch, type, version, content]; broker features are left out. Wherever
a record shows what happened to a broker, the decision is made again on the image before it, and has
to give the records that stand in the log.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from spindle.common.uuids import parse_uuid
from spindle.controller.decision import ControllerSettings
from spindle.controller.leadership import LeadershipChanges
from spindle.metadata.delta import MetadataDelta
from spindle.metadata.image import EMPTY_IMAGE, MetadataImage, MetadataProvenance
from spindle.metadata.record_versions import record_version
from spindle.protocol.message import Message
from spindle.protocol.messages import metadata_records
from spindle.protocol.messages.metadata_records import (
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)

RECORDED = Path(__file__).parent / "recorded"
SETTINGS = ControllerSettings(node_id=99, cluster_id="recorded")


@dataclass
class Recorded:
    """One record of a log, the image before it, and its neighbours in the batch."""

    offset: int
    record: Message
    version: int
    before: MetadataImage
    earlier: list[tuple[Message, MetadataImage]]
    later: list[Message]

    def changes_before(self) -> tuple[list[Message], MetadataImage]:
        """The partition changes right before it, and the image before the first of them."""
        found: list[Message] = []
        image = self.before
        for record, its_image in reversed(self.earlier):
            if not isinstance(record, PartitionChangeRecord):
                break
            found.insert(0, record)
            image = its_image
        return found, image

    def changes_after(self) -> list[Message]:
        """The partition changes right after it."""
        found: list[Message] = []
        for record in self.later:
            if not isinstance(record, PartitionChangeRecord):
                break
            found.append(record)
        return found


def message(cls: type[Message], content: dict[str, Any]) -> Message:
    """A message from its recorded fields."""
    fields = {field.name: field for field in cls.FIELDS}
    values: dict[str, Any] = {}
    for key, value in content.items():
        name = re.sub(r"(?<!^)([A-Z])", r"_\1", key).lower()
        kind = fields[name].type
        if not isinstance(kind, str):
            value = [message(kind, element) for element in value]
        elif kind == "uuid" and value is not None:
            value = [parse_uuid(v) for v in value] if isinstance(value, list) else parse_uuid(value)
        values[name] = value
    return cls(**values)


def batches(run: str) -> Iterator[list[tuple[int, Message, int]]]:
    """(offset, record, version) of each batch."""
    batch: list[tuple[int, Message, int]] = []
    base = -1
    for line in (RECORDED / f"{run}.jsonl").read_text().splitlines():
        entry = json.loads(line)
        if isinstance(entry, dict):
            continue
        offset, its_base, kind, version, content = entry
        cls = getattr(metadata_records, kind.title().replace("_", ""))
        if its_base != base and batch:
            yield batch
            batch = []
        base = its_base
        batch.append((offset, message(cls, content), version))
    yield batch


def recorded(run: str) -> Iterator[Recorded]:
    """Every record of a run, replayed one by one."""
    image = EMPTY_IMAGE
    for batch in batches(run):
        earlier: list[tuple[Message, MetadataImage]] = []
        for index, (offset, record, version) in enumerate(batch):
            if isinstance(record, BeginTransactionRecord | EndTransactionRecord):
                continue
            later = [entry[1] for entry in batch[index + 1 :]]
            yield Recorded(offset, record, version, image, list(earlier), later)
            earlier.append((record, image))
            delta = MetadataDelta(image)
            delta.replay(record, offset)
            image = delta.apply(MetadataProvenance(offset, 1, 0))
            image.check()


def by_partition(records: list[Message]) -> list[str]:
    """Independent of the order of partitions, which is that of a hash table there."""
    return sorted(map(repr, records))


def decided(entry: Recorded) -> tuple[list[Message], list[list[Message]]] | None:
    """(records in the log, what we would write; one of them has to agree), if it is a decision."""
    record = entry.record
    moved, start = entry.changes_before()
    if isinstance(record, UnregisterBrokerRecord):
        ours = LeadershipChanges(start, SETTINGS)
        ours.unregister(record.broker_id)
        return [*moved, record], [ours.records]
    if isinstance(record, RegisterBrokerRecord):
        known = start.cluster.brokers.get(record.broker_id)
        if known is None or known.incarnation_id == record.incarnation_id:
            return None
        candidates = []
        for is_clean in (True, False):
            ours = LeadershipChanges(start, SETTINGS)
            ours.forget_previous_incarnation(record.broker_id, is_clean=is_clean)
            candidates.append(ours.records)
        return moved, candidates
    if not isinstance(record, BrokerRegistrationChangeRecord):
        return None
    if record.fenced == 1:
        ours = LeadershipChanges(start, SETTINGS)
        ours.fence(record.broker_id)
        return [*moved, record], [ours.records]
    ours = LeadershipChanges(entry.before, SETTINGS)
    if record.fenced == -1:
        ours.unfence(record.broker_id)
        return [record, *entry.changes_after()], [ours.records]
    if record.in_controlled_shutdown:
        ours.begin_controlled_shutdown(record.broker_id)
        return [record, *entry.changes_after()], [ours.records]
    if record.log_dirs:
        ours = LeadershipChanges(start, SETTINGS)
        for directory in start.cluster.brokers[record.broker_id].directories:
            if directory not in record.log_dirs:
                ours.directory_failed(record.broker_id, directory)
        return moved, [ours.records]
    return None


@pytest.mark.parametrize(
    ("run", "decisions"),
    [
        ("first-start", 10),
        ("directory-failure", 17),
        ("cordons", 18),
        ("reassignment", 8),
        ("fencing", 37),
    ],
)
def test_decisions_are_those_of_the_recorded_controller(run: str, decisions: int) -> None:
    compared = 0
    for entry in recorded(run):
        decision = decided(entry)
        if decision is None:
            continue
        theirs, ours = decision
        compared += 1
        assert by_partition(theirs) in [by_partition(records) for records in ours], entry.offset
    assert compared == decisions


@pytest.mark.parametrize("run", sorted(path.stem for path in RECORDED.glob("*.jsonl")))
def test_records_have_the_versions_that_kafka_gave_them(run: str) -> None:
    compared = 0
    for entry in recorded(run):
        if isinstance(entry.record, FeatureLevelRecord):
            continue
        compared += 1
        assert record_version(entry.record, entry.before.metadata_version) == entry.version
    assert compared > 50
