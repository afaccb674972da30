"""A node of `spindle up` that the tests of a module share."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from up_command import UP, Say

from spindle.cli.main import run
from tools import failure_code


@pytest.fixture(scope="module")
def up() -> Iterator[dict[str, Any]]:
    """Start a node with three directories on free ports, and return its `ready` event."""
    with subprocess.Popen(
        [*UP, "--json", "--port", "0"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        events = map(json.loads, process.stdout)
        ready: dict[str, Any] = next(event for event in events if event["event"] == "ready")
        try:
            yield ready
        finally:
            process.terminate()
            process.stdout.read()
    assert not Path(ready["folder"]).exists()


@pytest.fixture
def bootstrap(up: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the address of that node, which SPINDLE_BOOTSTRAP has as well."""
    address = str(up["bootstrap_servers"])
    monkeypatch.setenv("SPINDLE_BOOTSTRAP", address)
    return address


@pytest.fixture
def say(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> Say:
    """Run a command that succeeds and return what it prints."""

    def said(*words: str) -> str:
        assert run(words) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    return said


@pytest.fixture
def refused(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> Say:
    """Run a command that fails and return what it prints on standard error."""

    def said(*words: str) -> str:
        capsys.readouterr()  # what earlier commands have printed
        code = run(words)
        captured = capsys.readouterr()
        assert code == failure_code(captured.err)
        assert captured.out == ""
        return captured.err

    return said
