"""The metadata logs of Apache Kafka 4.3.1 in `recorded/*.jsonl`, one record a line.

A line is [offset, base offset of its batch, type, version, content]; a line `{"step": ...}` names
the step of the recording. Registrations of controllers are left out, and features of brokers where
they do not matter.
"""

import json
import re
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spindle.common.uuids import parse_uuid
from spindle.metadata.delta import MetadataDelta
from spindle.metadata.image import EMPTY_IMAGE, MetadataImage, MetadataProvenance
from spindle.protocol.message import Message
from spindle.protocol.messages import metadata_records
from spindle.protocol.messages.metadata_records import (
    BeginTransactionRecord,
    EndTransactionRecord,
    PartitionChangeRecord,
)

RECORDED = Path(__file__).parent / "recorded"


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
        """Return the partition changes right before it, and the image before the first of them."""
        messages: list[Message] = []
        image = self.before
        for record, its_image in reversed(self.earlier):
            if not isinstance(record, PartitionChangeRecord):
                break
            messages.insert(0, record)
            image = its_image
        return messages, image

    def changes_after(self) -> list[Message]:
        """Return the partition changes right after it."""
        messages: list[Message] = []
        for record in self.later:
            if not isinstance(record, PartitionChangeRecord):
                break
            messages.append(record)
        return messages


def message(cls: type[Message], content: dict[str, Any]) -> Message:
    """Return a message from its recorded fields."""
    fields = {field.name: field for field in cls.FIELDS}
    values: dict[str, Any] = {}
    for key, value in content.items():
        name = re.sub(r"(?<!^)([A-Z])", r"_\1", key).lower()
        kind = fields[name].type
        if not isinstance(kind, str):
            value = [message(kind, element) for element in value]
        elif kind == "uuid" and value is not None:
            value = [parse_uuid(v) for v in value] if isinstance(value, list) else parse_uuid(value)
        elif kind == "bytes" and value is not None:
            value = b64decode(value)
        values[name] = value
    return cls(**values)


def batches(run: str) -> Iterator[list[tuple[int, Message, int]]]:
    """Yield (offset, record, version) of each batch."""
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
    """Yield every record of a run, replayed one by one."""
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


RUNS = sorted(path.stem for path in RECORDED.glob("*.jsonl"))
