"""Snapshots of Apache Kafka 4.3.1: our image writes the same records again.

`recorded_snapshots/*.jsonl` are two files of one run, one record a line: [offset, base offset of
its batch, type, version, content].
"""

import json
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from recorded_log import message

from spindle.common.ids import OffsetAndEpoch
from spindle.metadata.image import MetadataImage
from spindle.metadata.record_versions import record_version
from spindle.metadata.snapshot import snapshot_records
from spindle.metadata_log.encoding import encode_records
from spindle.metadata_log.snapshots import SnapshotBatch, SnapshotInfo, encode_snapshot
from spindle.protocol.message import Message
from spindle.protocol.messages import metadata_records
from spindle.protocol.records.batch import batches
from spindle.publication.loader import MetadataLoader
from spindle.raft.kraft_records import read_control_records

RECORDED = Path(__file__).parent / "recorded_snapshots"
SNAPSHOTS = sorted(path.stem for path in RECORDED.glob("*.jsonl"))


def entries(name: str) -> list[Any]:
    return [json.loads(line) for line in (RECORDED / f"{name}.jsonl").read_text().splitlines()]


def recorded(name: str) -> list[tuple[Message, int]]:
    """Return the metadata records of a snapshot and their versions."""
    return [
        (message(getattr(metadata_records, kind.title().replace("_", "")), content), version)
        for _, _, kind, version, content in entries(name)
        if not kind.startswith("control:")
    ]


def loaded(records: list[Message]) -> MetadataImage:
    batch = SnapshotBatch(0, 0, list(encode_records(records)))
    return MetadataLoader().load_snapshot(OffsetAndEpoch(300, 1), [batch]).image


def types(records: list[Message]) -> list[str]:
    """Return the order of the types; topics with their partitions are one."""
    names = [type(r).__name__.replace("PartitionRecord", "TopicRecord") for r in records]
    return [name for name, _ in groupby(names)]


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_an_image_is_written_as_the_snapshot_that_it_came_from(name: str) -> None:
    theirs = recorded(name)
    image = loaded([record for record, _ in theirs])
    ours = [(record, record_version(record, 30)) for record in snapshot_records(image)]
    assert sorted(map(repr, ours)) == sorted(map(repr, theirs))
    assert types([record for record, _ in ours]) == types([record for record, _ in theirs])


def test_offsets_and_batches_of_a_snapshot_file() -> None:
    """Offsets in the file count from 0; header and footer have their own batches."""
    name = SNAPSHOTS[-1]
    records = [record for record, _ in recorded(name)]
    header_ms = entries(name)[0][4]["lastContainedLogTimestamp"]
    values = encode_records(records)
    data = b"".join(encode_snapshot(values, SnapshotInfo(header_ms, 0, None), epoch=1, now_ms=7))
    ours = []
    for position, header in batches(data):
        kinds = [""] * header.record_count
        if header.is_control:
            kinds = [type(m).__name__ for _, m in read_control_records(data, position, header)]
        ours += [
            (header.base_offset + at, header.base_offset, kind) for at, kind in enumerate(kinds)
        ]
    theirs = [
        (offset, base, f"{kind[8:]}Record" if kind.startswith("control:") else "")
        for offset, base, kind, *_ in entries(name)
    ]
    assert ours == theirs
