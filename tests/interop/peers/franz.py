"""The program in go/, which plays scripts with franz-go."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from peers.paths import BUILD

SOURCES = Path(__file__).parents[1] / "go"
BUILD_LIMIT_S = 600.0
"""The compiler may have to compile the client's packages as well."""


def franz_program() -> Path:
    """Return the compiled program; Go compiles it again after a change. Skip without Go."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("Go is not installed (https://go.dev/dl/, any version from 1.21)")
    target = BUILD / "interop" / "franz"
    target.parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [go, "build", "-buildvcs=false", "-o", str(target), "."],
        cwd=SOURCES,
        capture_output=True,
        text=True,
        timeout=BUILD_LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, f"go build failed:\n{done.stderr}"
    return target
