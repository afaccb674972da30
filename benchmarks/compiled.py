"""Compile the C programs of the benchmarks on first use, and again after a change."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from functools import cache
from pathlib import Path

from peers.paths import BUILD, PeerUnavailable

FOLDER = Path(__file__).resolve().parent
FLAGS = ("-O2", "-Wall", "-Wextra", "-pthread")


@cache
def compiled(name: str, *words: str) -> Path:
    """Return the program made from `name`.c; `words` are for the linker.

    Raise PeerUnavailable without a C compiler.
    """
    source = FOLDER / f"{name}.c"
    digest = hashlib.sha256(source.read_bytes() + repr((FLAGS, words)).encode()).hexdigest()[:16]
    target = BUILD / "benchmarks" / f"{name}-{digest}"
    if target.is_file():
        return target
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise PeerUnavailable("the benchmarks need a C compiler (Debian: apt-get install gcc)")
    target.parent.mkdir(parents=True, exist_ok=True)
    # Another run must not find half a program.
    unfinished = target.with_suffix(".unfinished")
    subprocess.run([compiler, *FLAGS, "-o", str(unfinished), str(source), *words], check=True)
    unfinished.rename(target)
    return target
