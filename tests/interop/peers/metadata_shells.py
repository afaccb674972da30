"""Kafka's metadata shell and Spindle's on the same file."""

from __future__ import annotations

import re
import subprocess
from contextlib import suppress
from pathlib import Path

from peers.java_tools import QUICK_JVM, java_command
from peers.paths import OLDER_RELEASE, SPINDLE, kafka_shell_jars

_ATTEMPTS = 5
_LIMIT_S = 20
_VERIFIER = re.compile(r"\b(salt|storedKey|serverKey)=[0-9a-f]*")


def kafka_lines(path: Path, *words: str) -> list[str]:
    """Return what Kafka's shell prints, without what only Spindle's hides."""
    java = java_command(*QUICK_JVM, extra_path=f"{kafka_shell_jars()}/*", release=OLDER_RELEASE)
    lines = _lines([*java, "org.apache.kafka.shell.MetadataShell", "--snapshot", str(path), *words])
    return [_VERIFIER.sub(r"\1=[hidden]", line) for line in lines]


def own_lines(path: Path, *words: str) -> list[str]:
    """Return what Spindle's shell prints."""
    return _lines([str(SPINDLE), "kafka", "metadata-shell", "--snapshot", str(path), *words])


def _lines(command: list[str]) -> list[str]:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=True,
        timeout=_LIMIT_S,
        stdin=subprocess.DEVNULL,
    )
    return done.stdout.splitlines()


def compare(path: Path, *words: str) -> list[str]:
    """Return the lines that both shells print.

    Kafka's shell may start before it has read everything, or wait for ever for more.
    """
    ours = own_lines(path, *words)
    theirs: list[str] = []
    for _ in range(_ATTEMPTS):
        with suppress(subprocess.TimeoutExpired):
            theirs = kafka_lines(path, *words)
        if ours == theirs:
            break
    assert ours == theirs
    return ours
