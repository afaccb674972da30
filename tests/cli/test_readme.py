"""Examples of README and of docs work as they are printed, but for the address and the folder."""

import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import pytest

from spindle.cli.main import run, spindle
from spindle.cli.status.watch import NEEDS_ATTENTION

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = "".join(
    (ROOT / "docs" / "guide" / name).read_text(encoding="utf-8")
    for name in ("nodes.md", "operations.md")
)
ADDRESS = "127.0.0.1:9092"
FOLDER = re.compile(r"/tmp/spindle-\w+")
TABLE = "/tmp/numbers"


def blocks(language: str, text: str = README) -> list[str]:
    """Return the blocks of a text in a language, the unnamed ones for an empty string."""
    fenced_blocks = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [text for name, text in fenced_blocks if name == language]


def commands() -> list[list[str]]:
    """Return the words of every command line that begins with `$ spindle`."""
    lines = [line for text in blocks("", README + PAGES) for line in text.splitlines()]
    shown = [line.removeprefix("$ ") for line in lines if line.startswith("$ spindle ")]
    return [shlex.split(line, comments=True)[1:] for line in shown]


def run_python(texts: Sequence[str], up: dict[str, Any], folder: Path) -> str:
    """Run code against the node, with its tables in a folder of the test; its output."""
    code = "\n".join(texts).replace(ADDRESS, up["bootstrap_servers"])
    code = FOLDER.sub(up["folder"], code).replace(TABLE, str(folder / "numbers"))
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_producer_and_the_consumer_work_again_and_again(
    up: dict[str, Any], tmp_path: Path
) -> None:
    for _ in range(2):
        assert re.fullmatch(r"b'\d+'\n", run_python(blocks("python")[:1], up, tmp_path))


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_all_python_blocks_work_one_after_the_other(up: dict[str, Any], tmp_path: Path) -> None:
    assert len(blocks("python")) >= 2
    assert "|partition|count|" in run_python(blocks("python"), up, tmp_path).replace(" ", "")


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_the_commands_can_be_read(words: list[str]) -> None:
    """Every command and option exists; the commands for people run in another test."""
    command: click.Command = spindle
    while True:
        context = click.Context(command)
        # Converts no value and runs no callback, but refuses an option that is not there.
        _, words, _ = command.make_parser(context).parse_args(list(words))
        if not (isinstance(command, click.Group) and words):
            break
        inner = command.get_command(context, words.pop(0))
        assert inner is not None
        command = inner


@pytest.mark.parametrize(
    "words",
    [words for words in commands() if words[0] in ("topic", "status", "groups")],
    ids=" ".join,
)
def test_the_commands_for_a_cluster_work(
    words: list[str], bootstrap: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [bootstrap if word == "localhost:9092" else word for word in words]
    # The disk of this machine may need attention.
    code = run(given)
    refusals = ("already exists", "there is no group")
    assert code in (0, NEEDS_ATTENTION) or any(map(capsys.readouterr().err.__contains__, refusals))
