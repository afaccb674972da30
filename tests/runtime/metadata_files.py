"""The content of a node's metadata directory, read from its files."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from spindle.metadata_log.committed import decode_batch
from spindle.protocol.message import Message
from spindle.protocol.records.batch import batches
from spindle.raft.kraft_records import read_control_records

FOLDER = "__cluster_metadata-0"


def logged_batches(directory: Path) -> Iterator[tuple[int, int, list[Message]]]:
    """Yield (base offset, epoch, records) of every batch of the log, control records included."""
    for segment in sorted((directory / FOLDER).glob("*.log")):
        data = segment.read_bytes()
        for position, header in batches(data):
            if header.is_control:
                records = [m for _, m in read_control_records(data, position, header)]
            else:
                records = decode_batch(data, position, header).records
            yield header.base_offset, header.leader_epoch, records


def quorum_state(directory: Path) -> dict[str, Any]:
    state: dict[str, Any] = json.loads((directory / FOLDER / "quorum-state").read_text())
    return state


def directory_id(directory: Path) -> str:
    lines = (directory / "meta.properties").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)["directory.id"]
