"""`make setup`: what tools/install.py reads and shows."""

import re
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
sys.path.insert(0, str(TOP / "tools"))

from install import locked, progress, size_bytes, wheel_folder  # noqa: E402


def test_the_locked_pyspark_is_the_installed_one() -> None:
    wanted, entry = locked("pyspark")
    assert wanted == version("pyspark")
    assert entry.startswith(f"pyspark=={wanted} \\\n    --hash=sha256:")
    assert all(line.startswith(("pyspark", "    --hash")) for line in entry.splitlines())


def test_wheels_are_kept_in_the_environment_where_there_is_no_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert wheel_folder() == tmp_path / "cache/spindle/wheels"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert wheel_folder() == Path(sys.prefix) / "wheels"


def test_the_progress_says_how_much_was_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "old").write_bytes(bytes(5))
    with progress("a step", [tmp_path]):
        (tmp_path / "new").write_bytes(bytes(2_000_000))
    assert re.fullmatch(r"a step: \d+ s, 2 MB\n", capsys.readouterr().out)
    assert size_bytes([tmp_path]) == 2_000_005
