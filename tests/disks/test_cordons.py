"""Directories that get no new replicas (KIP-1066)."""

import os
from pathlib import Path

import pytest

from spindle.disks.cordons import cordoned_paths

PATHS = ("/a", "/b", "/c")


@pytest.mark.parametrize(
    ("dynamic", "cordoned"),
    [
        (None, ("/c",)),
        ("", ()),
        ("/a", ("/a",)),
        (" /b , /a,", ("/b", "/a")),
        ("*", PATHS),
        ("/gone", ()),
        ("/a,/gone", ("/a",)),
    ],
)
def test_the_dynamic_value_counts_before_the_property_file(
    dynamic: str | None, cordoned: tuple[str, ...]
) -> None:
    assert cordoned_paths(PATHS, ["/c"], dynamic) == cordoned


@pytest.mark.parametrize("form", ["plain", "slash", "dots", "relative", "link", "link-in-log-dirs"])
def test_a_path_names_the_directory_to_which_it_leads(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, other, link = tmp_path / "disk", tmp_path / "other", tmp_path / "link"
    disk.mkdir()
    link.symlink_to(disk)
    monkeypatch.chdir(tmp_path)
    configured = str(link if form == "link-in-log-dirs" else disk)
    written = {
        "plain": str(disk),
        "slash": f"{disk}/",
        "dots": f"{other}/../disk",
        "relative": os.path.relpath(disk),
        "link": str(link),
        "link-in-log-dirs": str(disk),
    }[form]
    paths = [str(other), configured]
    assert cordoned_paths(paths, [written], None) == (configured,)
    assert cordoned_paths(paths, [], written) == (configured,)
    assert cordoned_paths(paths, [], f"{written},{written}") == (configured,), "counts once"
