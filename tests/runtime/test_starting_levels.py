"""A node does not start on directories that a newer release has formatted."""

from pathlib import Path

import pytest
from node_harness import Home, running

from spindle.common.errors import ConfigError
from spindle.local.formatting.directories import bootstrap_snapshot
from spindle.protocol.messages.metadata_records import FeatureLevelRecord

SNAPSHOT = "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"


def formatted(folder: Path, **levels: int) -> Home:
    """Format a node, and give its first records these levels; `_` stands for a dot."""
    home = Home(folder).format()
    records = [
        FeatureLevelRecord(name=name.replace("_", "."), feature_level=level)
        for name, level in levels.items()
    ]
    (home.directories[0] / SNAPSHOT).write_bytes(bootstrap_snapshot(records, None, 0, 0))
    return home


@pytest.mark.parametrize(
    ("levels", "text"),
    [
        (
            {"metadata_version": 34},
            r"by a newer release: metadata.version 34 \(4.5-IV0\)",
        ),
        (
            {"metadata_version": 33, "share_version": 3},
            "formatted by a newer release: share.version 3 is not supported by this Spindle: it "
            "knows levels 0-2",
        ),
        (
            {"metadata_version": 33, "new_version": 1},
            "has feature new.version at level 1, and this Spindle does not know it",
        ),
    ],
)
async def test_directories_that_a_newer_release_has_formatted_are_refused(
    tmp_path: Path, levels: dict[str, int], text: str
) -> None:
    home = formatted(tmp_path, **levels)
    before = (home.directories[0] / SNAPSHOT).read_bytes()
    with pytest.raises(ConfigError, match=text):
        async with running(home):
            pass
    assert (home.directories[0] / SNAPSHOT).read_bytes() == before
    (log,) = home.directories[0].glob("__cluster_metadata-0/*.log")
    assert log.read_bytes() == b""


def formatted_by_kafka_4_3(folder: Path) -> Home:
    """Format a node without the bootstrap snapshot: `bootstrap.checkpoint` has its content."""
    home = Home(folder).format()
    (home.directories[0] / SNAPSHOT).unlink()
    return home


def level_33() -> FeatureLevelRecord:
    return FeatureLevelRecord(name="metadata.version", feature_level=33)


async def test_first_records_that_rot_after_the_first_start_do_no_harm(tmp_path: Path) -> None:
    home = formatted_by_kafka_4_3(tmp_path)
    rotten = home.directories[0] / "bootstrap.checkpoint"
    rotten.write_bytes(bootstrap_snapshot([level_33()], None, 0, 0))
    async with running(home) as node:
        assert node.publisher.image.metadata_version == 33
    rotten.write_bytes(b"rotten")
    async with running(home) as node:
        assert node.publisher.image.metadata_version == 33


async def test_first_records_that_cannot_be_read_are_refused_before_the_first_start(
    tmp_path: Path,
) -> None:
    home = formatted_by_kafka_4_3(tmp_path)
    (home.directories[0] / "bootstrap.checkpoint").write_bytes(b"rotten")
    with pytest.raises(ConfigError, match=r"bootstrap.checkpoint.*; format the directory again"):
        async with running(home):
            pass
