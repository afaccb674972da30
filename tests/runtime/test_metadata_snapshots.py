"""Snapshots on running nodes: written, the log before them deleted, loaded by an empty broker."""

from pathlib import Path

from cluster_harness import COMBINED, cluster_homes, running_cluster
from metadata_files import FOLDER
from node_harness import connected
from waiting import until

from spindle.metadata_log.snapshots import parse_snapshot_file_name
from spindle.runtime.node import Node


def snapshots(directory: Path) -> list[int]:
    """End offsets of the snapshots in a metadata directory, rising."""
    names = [path.name for path in (directory / FOLDER).glob("*.checkpoint")]
    return sorted(
        snapshot_file_name.offset
        for name in names
        if (snapshot_file_name := parse_snapshot_file_name(name))
    )


def first_segment(directory: Path) -> int:
    """Return the base offset of the oldest segment."""
    return min(int(path.stem) for path in (directory / FOLDER).glob("*.log"))


async def test_an_empty_broker_begins_where_a_cleaned_log_does(tmp_path: Path) -> None:
    homes = cluster_homes(
        tmp_path,
        [COMBINED, "broker"],
        metadata_log_max_record_bytes_between_snapshots="1000",
        metadata_log_segment_ms="300",
        metadata_max_retention_ms="1",
        metadata_max_idle_interval_ms="50",
    )
    first, late = (home.directories[0] for home in homes)

    async with running_cluster(homes[:1]) as (node,):
        async with connected(node) as client:
            created = [await client.create_topic(f"t{number}") for number in range(5)]
        await until(lambda: first_segment(first) > 0)
        other = Node(homes[1].config())
        try:
            await other.start()
            assert other.broker is not None
            image = other.broker.metadata.image
            assert sorted(image.topics.by_id) == sorted(created)
        finally:
            await other.stop()
    for directory in (first, late):
        assert first_segment(directory) > 0
        assert snapshots(directory)[0] >= first_segment(directory)
        assert not list((directory / FOLDER).glob("*.part"))
