"""Directories that get no new replicas (KIP-1066)."""

import pytest

from spindle.disks.cordons import cordoned_paths

PATHS = ["/a", "/b", "/c"]


@pytest.mark.parametrize(
    ("dynamic", "cordoned"),
    [
        (None, ["/c"]),
        ("", []),
        ("/a", ["/a"]),
        (" /b , /a,", ["/b", "/a"]),
        ("*", PATHS),
        ("/a,/gone", []),
    ],
)
def test_the_dynamic_value_counts_before_the_property_file(
    dynamic: str | None, cordoned: list[str]
) -> None:
    assert list(cordoned_paths(PATHS, ["/c"], dynamic)) == cordoned
