"""A metadata log that a newer release has continued: the node stops, and changes nothing."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from metadata_files import FOLDER, logged_batches
from node_harness import Home, running

from spindle.common.errors import UnsupportedMetadata
from spindle.common.ids import OffsetAndEpoch
from spindle.metadata_log.snapshots import SnapshotInfo, encode_snapshot, snapshot_file_name
from spindle.protocol.messages.metadata_records import FeatureLevelRecord
from spindle.protocol.metadata_frame import frame
from spindle.protocol.records.builder import build_batch_of_values
from spindle.protocol.records.control import build_control_batch
from spindle.raft import kraft_records
from spindle.raft.voters import VoterSet
from spindle.runtime.node import Node

_LIMIT_S = 20


class Stopped(NamedTuple):
    """A home whose node has been stopped, and the end of its metadata log."""

    home: Home
    end: OffsetAndEpoch

    @property
    def folder(self) -> Path:
        return self.home.directories[0] / FOLDER

    def append(self, batch: bytes) -> None:
        (segment,) = self.folder.glob("*.log")
        with segment.open("ab") as file:
            file.write(batch)

    def content(self) -> dict[str, bytes]:
        """Return segments and snapshots; the quorum adds the records of its elections to them."""
        files = [*self.folder.glob("*.log"), *self.folder.glob("*.checkpoint")]
        return {file.name: file.read_bytes() for file in files}


async def stopped(folder: Path) -> Stopped:
    home = Home(folder).format()
    async with running(home):
        pass
    offset, epoch, records = list(logged_batches(home.directories[0]))[-1]
    return Stopped(home, OffsetAndEpoch(offset + max(len(records), 1), epoch))


async def fault(home: Home) -> str:
    """Start the node, and return why it has stopped."""
    node = Node(home.config())
    try:
        async with asyncio.timeout(_LIMIT_S):
            await node.start()
            reason = await node.wait_stopped()
    finally:
        await node.stop()
    assert reason is not None
    return reason


def level(name: str, level: int) -> bytes:
    return frame(FeatureLevelRecord(name=name, feature_level=level), 0)


def in_log(at: Stopped, values: list[bytes]) -> None:
    at.append(build_batch_of_values(values, 0, at.end.offset, at.end.epoch))


def in_snapshot(at: Stopped, values: list[bytes]) -> None:
    content = encode_snapshot(
        [level("metadata.version", 33), *values],
        SnapshotInfo(0, 0, None),
        epoch=at.end.epoch,
        now_ms=0,
    )
    (at.folder / snapshot_file_name(at.end)).write_bytes(b"".join(content))


@pytest.mark.parametrize("write", [in_log, in_snapshot])
@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (
            level("metadata.version", 34),
            "metadata.version 34 (4.5-IV0) is newer than this Spindle: it knows levels up to 33 "
            "(4.4-IV2)",
        ),
        (
            level("group.version", 2),
            "group.version 2 is not supported by this Spindle: it knows levels 0-1",
        ),
        (
            level("share.version", 3),
            "share.version 3 is not supported by this Spindle: it knows levels 0-2",
        ),
        (
            level("streams.version", 2),
            "streams.version 2 is not supported by this Spindle: it knows levels 0-1",
        ),
        (
            level("new.version", 1),
            "the cluster has feature new.version at level 1, and this Spindle does not know it",
        ),
        (b"\x01\x50\x00", "metadata record type 80 is unknown to this release"),
        (
            b"\x01\x0c\x07\x00",
            "FeatureLevelRecord version 7 is unknown to this release: it knows 0 to 0",
        ),
        (b"\x02\x0c\x00", "metadata frame version 2 is newer than this release: it knows 1"),
    ],
    ids=["metadata", "group", "share", "streams", "unknown", "type", "version", "frame"],
)
async def test_a_node_stops_at_what_a_newer_release_has_written(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    write: Callable[[Stopped, list[bytes]], None],
    value: bytes,
    reason: str,
) -> None:
    at = await stopped(tmp_path)
    write(at, [value])
    before = at.content()
    caplog.set_level(logging.CRITICAL)
    text = f"{reason}. Start a release of Spindle, or of Kafka, that knows it"
    assert text in await fault(at.home)
    (line,) = [one.message for one in caplog.records if one.levelno == logging.CRITICAL]
    assert text in line
    after = at.content()
    assert {name: after[name][: len(data)] for name, data in before.items()} == before


@pytest.mark.parametrize("is_snapshot", [False, True])
async def test_a_node_does_not_start_at_a_kraft_version_that_it_does_not_know(
    tmp_path: Path, *, is_snapshot: bool
) -> None:
    at = await stopped(tmp_path)
    if is_snapshot:
        info = SnapshotInfo(0, 2, VoterSet())
        content = encode_snapshot(
            [level("metadata.version", 33)], info, epoch=at.end.epoch, now_ms=0
        )
        (at.folder / snapshot_file_name(at.end)).write_bytes(b"".join(content))
    else:
        record = kraft_records.kraft_version(2)
        at.append(build_control_batch([record], 0, at.end.offset, at.end.epoch))
    before = at.content()
    with pytest.raises(
        UnsupportedMetadata, match=r"kraft\.version 2 is not supported by this Spind"
    ):
        await fault(at.home)
    assert at.content() == before


async def test_the_level_0_of_an_unknown_feature_is_no_hindrance(tmp_path: Path) -> None:
    at = await stopped(tmp_path)
    in_log(at, [level("new.version", 0)])
    async with running(at.home) as node:
        assert node.publisher.image.metadata_version == 33
