"""Kafka's DumpLogSegments over all files of log directories."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from peers.java_tools import JavaTools


def check_files(log_dirs: Iterable[Path], java_tools: JavaTools) -> dict[str, int]:
    """Run DumpLogSegments over every file of a node that has stopped.

    Return the number of accepted files by suffix.

    Raises:
        AssertionError: the tool found damage in a file.
    """
    counts: dict[str, int] = {}
    for directory in log_dirs:
        for path in sorted(directory.rglob("*")):
            options = _dump_options(path)
            if options is None or path.stat().st_size == 0:
                continue
            done = java_tools.run("dump-log", "--files", str(path), *options).check()
            problems = [
                line
                for line in (done.stdout + done.stderr).splitlines()
                if re.search(
                    r"isvalid: false|Mismatches in|Found timestamp mismatch|Exception"
                    r"|invalid bytes|not in order|not found|^\s+\d+ is followed by",
                    line,
                )
            ]
            assert problems == [], f"{path}: {problems[:5]}"
            counts[path.suffix] = counts.get(path.suffix, 0) + 1
    return counts


def _dump_options(path: Path) -> list[str] | None:
    if path.parent.name.endswith("-delete"):
        return None  # the files stay as they were in use: indexes are not trimmed
    in_metadata = path.parent.name == "__cluster_metadata-0"
    if path.suffix == ".log":
        return ["--cluster-metadata-decoder"] if in_metadata else ["--deep-iteration"]
    if path.suffix == ".checkpoint" and in_metadata:
        return ["--cluster-metadata-decoder"]
    if path.suffix == ".index":
        return ["--index-sanity-check"]
    if path.suffix in (".timeindex", ".snapshot", ".txnindex"):
        return []
    return None
