"""Feature levels against what Apache Kafka 4.4.0 prints and writes."""

import pytest

from spindle.common.errors import UnsupportedMetadata
from spindle.metadata.features import (
    LATEST_METADATA_VERSION,
    METADATA_VERSIONS,
    MINIMUM_METADATA_VERSION,
    check_metadata_version,
    default_level,
    dependencies,
    downgrade_loses_metadata,
    metadata_version,
    metadata_version_name,
    parse_metadata_version,
)


def test_the_table_has_every_level_once_in_order() -> None:
    levels = [version.level for version in METADATA_VERSIONS]
    assert levels == list(range(MINIMUM_METADATA_VERSION, LATEST_METADATA_VERSION + 1))
    assert metadata_version_name(30) == "4.3-IV0"
    assert metadata_version(7).release == "3.3"
    assert metadata_version_name(99) == "99"
    with pytest.raises(ValueError, match=r"no metadata.version 6"):
        metadata_version(6)


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("4.4", 33),
        ("4.4-IV0", 31),
        ("4.3", 30),
        ("4.3.1", 30),
        ("4.0", 25),
        ("4.0-IV1", 23),
        ("3.7", 19),
        ("3.3", 7),
        ("3.5", 11),
    ],
)
def test_a_release_means_its_newest_level(text: str, level: int) -> None:
    assert parse_metadata_version(text) == level


@pytest.mark.parametrize("text", ["4.9", "3.2", "4", "", "4.3-IV9", "4.5-IV0", "latest"])
def test_unknown_releases_name_what_is_known(text: str) -> None:
    with pytest.raises(ValueError, match=r"Supported metadata.version are: 3.3-IV3, 3.4-IV0"):
        parse_metadata_version(text)


def test_default_feature_levels_follow_the_metadata_version() -> None:
    assert [default_level("transaction.version", level) for level in (23, 24, 30)] == [0, 2, 2]
    assert [default_level("kraft.version", level) for level in (20, 21)] == [0, 1]
    assert [default_level("share.version", level) for level in (27, 28, 30, 31)] == [0, 1, 1, 2]
    assert [default_level("streams.version", level) for level in (28, 29, 33)] == [0, 1, 1]
    assert dependencies("group.version", 1) == {}
    assert dependencies("eligible.leader.replicas.version", 1) == {"metadata.version": 23}


def test_levels_that_changed_metadata_bar_the_way_down() -> None:
    assert downgrade_loses_metadata(33, 32)
    assert downgrade_loses_metadata(32, 31)
    assert not downgrade_loses_metadata(31, 30)
    assert downgrade_loses_metadata(30, 29)
    assert not downgrade_loses_metadata(29, 24)
    assert downgrade_loses_metadata(29, 22)
    assert not downgrade_loses_metadata(7, 7)


@pytest.mark.parametrize(
    ("level", "text"),
    [
        (
            34,
            "metadata.version 34 (4.5-IV0) is newer than this Spindle: it knows levels up to "
            "33 (4.4-IV2). Start a release of Spindle, or of Kafka, that knows it",
        ),
        (99, "metadata.version 99 is newer than this Spindle"),
        (
            6,
            "metadata.version 6 is older than this Spindle: it knows levels from 7 (3.3-IV3) on. "
            "Raise the level with Kafka 3.3 to 3.9 first",
        ),
    ],
)
def test_a_level_out_of_range_is_refused_by_its_name(level: int, text: str) -> None:
    with pytest.raises(UnsupportedMetadata) as refused:
        check_metadata_version(level)
    assert str(refused.value).startswith(text)
