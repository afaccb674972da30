"""`make setup`: what tools/install.py reads and shows."""

import re
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
sys.path.insert(0, str(TOP / "tools"))

from install import locked, progress, size_bytes  # noqa: E402


def test_the_locked_pyspark_is_the_installed_one() -> None:
    wanted, entry = locked("pyspark")
    assert wanted == version("pyspark")
    assert entry.startswith(f"pyspark=={wanted} \\\n    --hash=sha256:")
    assert all(line.startswith(("pyspark", "    --hash")) for line in entry.splitlines())


def test_the_progress_says_how_much_was_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "old").write_bytes(bytes(5))
    with progress("a step", [tmp_path]):
        (tmp_path / "new").write_bytes(bytes(2_000_000))
    assert re.fullmatch(r"a step: \d+ s, 2 MB\n", capsys.readouterr().out)
    assert size_bytes([tmp_path]) == 2_000_005
