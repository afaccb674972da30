"""A node of `spindle up` that the tests of a module share."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from up_command import UP


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
