"""Directories that get no new replicas, and why (KIP-1066)."""

import os
from pathlib import Path

import pytest

from spindle.config.cordon_notes import CordonNote
from spindle.disks.cordons import Cordon, CordonCause, entries_in_force, read_cordons

PATHS = ("/a", "/b", "/c")
CONFIGURED = Cordon(CordonCause.CONFIGURATION)
FULL = Cordon(CordonCause.WATERMARK)


@pytest.mark.parametrize(
    ("dynamic", "cordoned"),
    [
        (None, ["/c"]),
        ("", []),
        ("/a", ["/a"]),
        (" /b , /a,", ["/b", "/a"]),
        ("*", ["/a", "/b", "/c"]),
        ("*,/b", ["/b", "/a", "/c"]),
        ("/gone", []),
        ("/a,/gone", ["/a"]),
    ],
)
def test_the_dynamic_value_counts_before_the_property_file(
    dynamic: str | None, cordoned: list[str]
) -> None:
    reasons = read_cordons(PATHS, entries_in_force(["/c"], dynamic), (), ())
    assert list(reasons) == cordoned
    assert all(cordons == [CONFIGURED] for cordons in reasons.values())


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
    note = CordonNote(written, "worn", "ops", 1, 9)
    expected = {configured: [Cordon(CordonCause.CONFIGURATION, "worn", "ops", 9)]}
    assert read_cordons(paths, [written], [note], ()) == expected
    assert read_cordons(paths, [written, str(disk)], [note], ()) == expected, "counts once"


def test_a_full_directory_is_cordoned_apart_from_the_cordon_of_an_operator() -> None:
    assert read_cordons(PATHS, ["/b"], (), ["/b", "/c", "/gone"]) == {
        "/b": [CONFIGURED, FULL],
        "/c": [FULL],
    }
    noted = Cordon(CordonCause.CONFIGURATION, owner="ops")
    assert read_cordons(PATHS, ["*"], [CordonNote("*", owner="ops")], ["/a"]) == {
        "/a": [noted, FULL],
        "/b": [noted],
        "/c": [noted],
    }
