"""The second run of failed tests in CI."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "tools" / "unstable_tests.py"


def run_again(folder: Path, failed: list[str]) -> subprocess.CompletedProcess[str]:
    cache = folder / ".pytest_cache/v/cache"
    cache.mkdir(parents=True)
    (cache / "lastfailed").write_text(json.dumps(dict.fromkeys(failed, True)))
    command = [sys.executable, str(SCRIPT)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_a_failed_test_that_passes_alone_is_named_as_unstable(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text("def test_fine(): pass\n")
    done = run_again(tmp_path, ["test_a.py::test_fine"])
    assert done.returncode == 0
    assert "unstable, to be mended:\n  test_a.py::test_fine" in done.stdout


def test_a_test_that_fails_again_fails_the_run(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text("def test_broken(): assert False\n")
    assert run_again(tmp_path, ["test_a.py::test_broken"]).returncode == 1


def test_the_whole_module_of_a_failed_test_is_run_again(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text(
        "seen = []\ndef test_first(): seen.append(1)\ndef test_second(): assert seen == [1]\n"
    )
    done = run_again(tmp_path, ["test_a.py::test_second"])
    assert done.returncode == 0
    assert "2 passed" in done.stdout


@pytest.mark.parametrize("failed", [[], [f"test_{n}.py::test_fine" for n in range(4)]])
def test_failures_in_none_or_many_modules_are_not_run_again(
    tmp_path: Path, failed: list[str]
) -> None:
    for n in range(4):
        (tmp_path / f"test_{n}.py").write_text("def test_fine(): pass\n")
    assert run_again(tmp_path, failed).returncode == 1
