"""Reads that begin in a log directory and have to end elsewhere, against a small broker."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from log_directory_files import ReplicaWriter, format_directory, simple_records, write_checkpoint
from wire_broker import WireBroker

from spindle.client.blocking.settings import client_settings
from spindle.common.errors import CorruptLog
from spindle.common.ids import TopicPartition
from spindle.pipeline.brokers.segments_fallback import RowsThroughBrokers
from spindle.pipeline.errors import AccessDenied, DataLoss, WrongHost
from spindle.pipeline.segments.failover import read_settings
from spindle.pipeline.segments.options import SegmentOptions, parse_segment_options
from spindle.pipeline.segments.partitions import readable_partitions
from spindle.pipeline.segments.ranges import SegmentRange, plan_tasks, resolve_ranges
from spindle.pipeline.segments.reader import read_ranges

T0 = TopicPartition("topic", 0)
EVERY_OFFSET = list(range(1200))


@pytest.fixture
def writer(tmp_path: Path) -> ReplicaWriter:
    """Return a replica of three segments with 400 records each, and an empty second directory."""
    for name in ("d1", "d2"):
        directory = format_directory(tmp_path / name)
        (directory / ".kafka_cleanshutdown").touch()
    writer = ReplicaWriter(tmp_path / "d1", T0)
    for first in (0, 400, 800):
        if first:
            writer.roll()
        writer.append_records(simple_records(400, first=first))
    return writer


@pytest.fixture
def broker(writer: ReplicaWriter) -> Iterator[WireBroker]:
    """Return a broker that has the same records."""
    with WireBroker() as running:
        log = running.log("topic", 0)
        for segment in sorted(writer.path.glob("*.log")):
            log.append(segment.read_bytes())
        running.topic_ids["topic"] = writer.topic_id
        yield running


class Read:
    """A planned read, whose batches a test takes one by one."""

    def __init__(self, writer: ReplicaWriter, broker: WireBroker | None, **extra: str) -> None:
        given = {"logDirs": f"{writer.directory.parent}/d*", "subscribe": "topic", **extra}
        self.options = parse_segment_options(given)
        self.tasks = planned(self.options)
        way = None
        if broker is not None:
            way = RowsThroughBrokers(client_settings({"bootstrap.servers": broker.address}))
        self.settings = read_settings(self.options, way)

    def batches(self) -> Iterator[Any]:
        for task in self.tasks:
            yield from read_ranges(task, self.settings)

    def offsets(self) -> list[int]:
        return offsets_of(self.batches())


def planned(options: SegmentOptions) -> list[tuple[SegmentRange, ...]]:
    return plan_tasks(options, resolve_ranges(options, readable_partitions(options), NO_FILTERS))


NO_FILTERS = parse_segment_options({"logDirs": "/d", "subscribe": "t"}).row_bounds


def offsets_of(batches: Iterator[Any]) -> list[int]:
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


def test_a_replica_that_moves_during_the_read_is_read_on_where_it_is(
    writer: ReplicaWriter,
) -> None:
    batches = Read(writer, None).batches()
    first = next(batches)
    writer.path.rename(writer.directory.parent / "d2" / "topic-0")
    rest = offsets_of(batches)
    assert first.column("offset").to_pylist() + rest == EVERY_OFFSET


def test_a_replica_that_vanishes_during_the_read_is_read_on_through_the_brokers(
    writer: ReplicaWriter, broker: WireBroker
) -> None:
    batches = Read(writer, broker).batches()
    first = next(batches)
    writer.path.rename(writer.directory / "topic-0.0123456789abcdef-delete")
    assert first.column("offset").to_pylist() + offsets_of(batches) == EVERY_OFFSET


def test_a_replica_that_vanishes_is_data_loss_without_brokers(writer: ReplicaWriter) -> None:
    batches = Read(writer, None).batches()
    next(batches)
    writer.path.rename(writer.directory / "topic-0.0123456789abcdef-delete")
    with pytest.raises(DataLoss, match=r"does not exist any more; offsets \[400, 1200\)"):
        list(batches)


def test_segments_that_are_merged_while_one_of_them_is_read_are_read_once(
    writer: ReplicaWriter,
) -> None:
    writer.roll()
    batches = Read(writer, None).batches()
    first = next(batches)
    paths = [writer.path / f"{base:020d}.log" for base in (0, 400, 800)]
    merged = writer.path / "00000000000000000000.log.swap"
    merged.write_bytes(b"".join(path.read_bytes() for path in paths))
    for path in paths:
        path.unlink()
    merged.rename(paths[0])
    for index in writer.path.glob("*index"):
        index.unlink()
    assert first.column("offset").to_pylist() + offsets_of(batches) == EVERY_OFFSET


def test_a_compacted_segment_that_waits_for_its_rename_is_read(writer: ReplicaWriter) -> None:
    paths = [writer.path / f"{base:020d}.log" for base in (0, 400)]
    merged = writer.path / "00000000000000000000.log.swap"
    merged.write_bytes(b"".join(path.read_bytes() for path in paths))
    assert Read(writer, None).offsets() == EVERY_OFFSET
    paths[0].unlink()
    assert Read(writer, None).offsets() == EVERY_OFFSET


@pytest.mark.parametrize("is_gone", [True, False])
def test_on_a_machine_without_the_planned_directory_the_brokers_are_asked(
    writer: ReplicaWriter, broker: WireBroker, is_gone: bool
) -> None:
    read, local = Read(writer, broker), Read(writer, None, failOnDataLoss="false")
    home = writer.directory
    home.rename(home.with_name("elsewhere"))
    if not is_gone:
        format_directory(home, node_id=8)
        ReplicaWriter(home, T0).append_records(simple_records(5))
    assert read.offsets() == EVERY_OFFSET
    finding = "no such log directory" if is_gone else "that is LogDirectoryIdentity"
    with pytest.raises(WrongHost, match=rf"{home} of .*; .*{finding}.*kafka\.bootstrap\.servers"):
        local.offsets()


def refuse_to_open(monkeypatch: pytest.MonkeyPatch, name: str, code: int) -> None:
    """Let no file of this name be opened, as for a user without rights or on a dead disk."""
    import builtins

    real = builtins.open

    def refusing(path: Any, *arguments: Any, **named: Any) -> Any:
        if Path(str(path)).name == name:
            raise OSError(code, os.strerror(code), str(path))
        return real(path, *arguments, **named)

    monkeypatch.setattr(builtins, "open", refusing)


@pytest.mark.parametrize("code", [errno.EACCES, errno.EIO])
def test_a_segment_that_cannot_be_read_is_read_through_the_brokers(
    writer: ReplicaWriter, broker: WireBroker, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, local = Read(writer, broker), Read(writer, None, failOnDataLoss="false")
    name = "00000000000000000400.log"
    refuse_to_open(monkeypatch, name, code)
    assert read.offsets() == EVERY_OFFSET
    with pytest.raises(WrongHost, match=rf"{name}.* With the option kafka\.bootstrap\.servers"):
        local.offsets()


def test_missing_rights_are_named_when_the_read_is_planned(
    writer: ReplicaWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_to_open(monkeypatch, "00000000000000000400.log", errno.EACCES)
    with pytest.raises(AccessDenied, match=r"400\.log may not be read by this user"):
        Read(writer, None)


def test_broken_checkpoints_are_named_when_the_read_is_planned(writer: ReplicaWriter) -> None:
    write_checkpoint(writer.directory, "log-start-offset-checkpoint", {T0: 10})
    assert Read(writer, None).offsets() == EVERY_OFFSET[10:]
    path = writer.directory / "log-start-offset-checkpoint"
    path.write_text("0\n2\ntopic 0 10\n")
    with pytest.raises(CorruptLog, match=str(path)):
        Read(writer, None)
    path.unlink()
    (writer.path / "leader-epoch-checkpoint").write_text("0\n1\n0 zero\n")
    with pytest.raises(CorruptLog, match="leader-epoch-checkpoint"):
        Read(writer, None)
