"""The files of log directories as lines of a recording."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from pathlib import Path

from recordings.names import Names

_ALWAYS = ("meta.properties", "partition.metadata")
"""Text files whose content is shown of a running node, too."""
_STOPPED = (
    ".kafka_cleanshutdown",
    "leader-epoch-checkpoint",
    "log-start-offset-checkpoint",
    "quorum-state",
    "recovery-point-offset-checkpoint",
)
_OFFSET = re.compile(r"\d{20}")
_EPOCH = re.compile(r'"(brokerEpoch|appliedOffset|leaderEpoch|lastUpdatedOffset)":\d+')
_METADATA = "__cluster_metadata-0"


def tree_lines(
    directory: Path, names: Names, *, is_stopped: bool, left_out: Container[Path] = ()
) -> Iterator[str]:
    """Yield the names of the files below a directory, and the content of text files.

    Checkpoints are shown when the node is stopped: before, their content depends on the time.
    """
    yield names.plain(str(directory))
    try:
        yield from _lines(directory, names, is_stopped, left_out)
    except OSError as error:
        yield f"  ({error.strerror})"


def _lines(directory: Path, names: Names, is_stopped: bool, left_out: Container[Path]) -> list[str]:
    shown = (*_ALWAYS, *_STOPPED) if is_stopped else _ALWAYS
    lines = []
    list(directory.iterdir())
    # The names of deleted and future logs have random digits.
    paths = sorted(
        directory.rglob("*"), key=lambda path: names.plain(str(path.relative_to(directory)))
    )
    for path in paths:
        place = path.relative_to(directory)
        if directory / place.parts[0] in left_out or path.suffix == ".tmp":
            continue
        name = names.plain(str(place))
        if place.parts[0] == _METADATA:
            name = _OFFSET.sub("<offset>", name)
        if path.is_dir():
            name += "/"
        if f"  {name}" in lines:
            continue  # another segment of the metadata log, or an earlier log of the name
        lines.append(f"  {name}")
        is_metadata_checkpoint = path.name.endswith("checkpoint") and _METADATA in place.parts
        if path.name in shown and not is_metadata_checkpoint:
            lines += [f"    | {names.plain(line)}" for line in _content(path)]
    return lines


def _content(path: Path) -> list[str]:
    text = _EPOCH.sub(r'"\1":<epoch>', path.read_text(errors="replace"))
    lines = text.splitlines()
    if path.name.endswith("offset-checkpoint"):
        # A checkpoint without entries is empty before it is first written.
        return [*lines[:2], *sorted(lines[2:])] if len(lines) > 2 else []
    # The first two lines of a properties file are a comment and a date.
    return [line for line in lines if not line.startswith("#")]
