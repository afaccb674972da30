"""Paths of log directories, compared by the directory that they lead to.

Apache Kafka compares the entries of `cordoned.log.dirs` with `log.dirs` as texts. Here a relative
path, a trailing slash and a symbolic link name the same directory as its plain path.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

EVERY_DIRECTORY: Final = "*"
"""An entry of `cordoned.log.dirs` that stands for every log directory."""


def resolve_path(path: str) -> str:
    """Return the absolute path without symbolic links; a relative path starts at the working
    directory of the process, as for `log.dirs`."""
    return os.path.realpath(path)


def match_paths(wanted: Iterable[str], log_dirs: Sequence[str]) -> Mapping[str, str | None]:
    """Return for each wanted path the entry of `log_dirs` that names the same directory.

    The value is None for a path that leads to none of them.
    """
    by_place = {resolve_path(path): path for path in reversed(log_dirs)}
    return {path: by_place.get(resolve_path(path)) for path in wanted}


def cordon_entries(text: str) -> tuple[str, ...]:
    """Return the entries of a value of `cordoned.log.dirs`, as they were written."""
    return tuple(entry.strip() for entry in text.split(",") if entry.strip())
