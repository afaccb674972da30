"""A node does not start on directories that a newer release has formatted."""

from pathlib import Path

import pytest
from node_harness import Home, running

from spindle.common.errors import ConfigError
from spindle.local.formatting.checkpoints import bootstrap_snapshot
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
            "formatted by a newer release: this Spindle does not support share.version 3",
        ),
        ({"metadata_version": 33, "new_version": 1}, "does not support new.version 1"),
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
