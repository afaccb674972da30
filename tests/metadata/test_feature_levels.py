"""Feature levels against what Apache Kafka 4.3.1 prints and writes."""

import pytest

from spindle.metadata.features import (
    LATEST_METADATA_VERSION,
    METADATA_VERSIONS,
    MINIMUM_METADATA_VERSION,
    bootstrap_levels,
    default_level,
    dependencies,
    downgrade_loses_metadata,
    fetch_version,
    list_offsets_version,
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


@pytest.mark.parametrize("text", ["4.9", "3.2", "4", "", "4.3-IV9", "latest"])
def test_unknown_releases_name_what_is_known(text: str) -> None:
    with pytest.raises(ValueError, match=r"Supported metadata.version are: 3.3-IV3, 3.4-IV0"):
        parse_metadata_version(text)


def test_a_new_cluster_at_4_3() -> None:
    assert bootstrap_levels(30) == [
        ("metadata.version", 30),
        ("eligible.leader.replicas.version", 1),
        ("group.version", 1),
        ("share.version", 1),
        ("streams.version", 1),
        ("transaction.version", 2),
    ]


def test_a_new_cluster_at_4_0_and_before() -> None:
    assert bootstrap_levels(25) == [
        ("metadata.version", 25),
        ("group.version", 1),
        ("transaction.version", 2),
    ]
    assert bootstrap_levels(7) == [("metadata.version", 7)]


def test_overrides_are_checked_against_range_and_dependency() -> None:
    assert ("share.version", 1) in bootstrap_levels(25, {"share.version": 1}), "no dependency"
    assert bootstrap_levels(25, {"group.version": 0})[1][0] == "transaction.version"
    with pytest.raises(ValueError, match=r"depends on metadata.version level 23"):
        bootstrap_levels(22, {"eligible.leader.replicas.version": 1})
    with pytest.raises(ValueError, match=r"levels are 0-1"):
        bootstrap_levels(30, {"group.version": 2})
    with pytest.raises(ValueError, match=r"unknown feature nosuch"):
        bootstrap_levels(30, {"nosuch": 1})


def test_defaults_by_level() -> None:
    assert [default_level("transaction.version", level) for level in (23, 24, 30)] == [0, 2, 2]
    assert [default_level("kraft.version", level) for level in (20, 21)] == [0, 1]
    assert dependencies("group.version", 1) == {}
    assert dependencies("eligible.leader.replicas.version", 1) == {"metadata.version": 23}


def test_levels_that_changed_metadata_bar_the_way_down() -> None:
    assert downgrade_loses_metadata(30, 29)
    assert not downgrade_loses_metadata(29, 24)
    assert downgrade_loses_metadata(29, 22)
    assert not downgrade_loses_metadata(7, 7)


def test_request_versions_by_level() -> None:
    assert [fetch_version(level) for level in (7, 9, 10, 18, 19, 21, 26, 27, 30)] == [
        13, 14, 15, 15, 16, 17, 17, 18, 18,
    ]  # fmt: skip
    assert [list_offsets_version(level) for level in (8, 9, 21, 25, 28, 29)] == [
        7, 8, 9, 10, 10, 11,
    ]  # fmt: skip
