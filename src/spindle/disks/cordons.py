"""Which log directories get no new replicas, and why (KIP-1066)."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from spindle.config.cordon_notes import CordonNote
from spindle.config.log_dir_paths import EVERY_DIRECTORY, cordon_entries, match_paths


class CordonCause(StrEnum):
    """The reason why a directory is cordoned."""

    CONFIGURATION = "configuration"
    """`cordoned.log.dirs` names the directory: set by an operator."""
    WATERMARK = "watermark"
    """The directory is nearly full: set by the broker until space is free again."""


@dataclass(frozen=True, slots=True)
class Cordon:
    """A cordon of one log directory; `until_ms` is a wall-clock time."""

    cause: CordonCause
    reason: str | None = None
    owner: str | None = None
    until_ms: int | None = None


def read_cordons(
    paths: Sequence[str], entries: Sequence[str], notes: Sequence[CordonNote], full: Sequence[str]
) -> dict[str, list[Cordon]]:
    """Return the cordons of each cordoned directory, those of the configuration first.

    Args:
        paths: the log directories.
        entries: of `cordoned.log.dirs`. An entry that is not a log directory is left out: the
            directory may have been removed from `log.dirs` since.
        notes: those of the entries.
        full: the directories that are nearly full.
    """
    noted = {note.path: note for note in notes}
    cordons: dict[str, list[Cordon]] = {}
    matched = [(e, path) for e, path in match_paths(entries, paths).items() if path is not None]
    if EVERY_DIRECTORY in entries:
        # It stays in force beside an entry that another client appends.
        matched += [(EVERY_DIRECTORY, path) for path in paths]
    for entry, path in matched:
        note = noted.get(entry, CordonNote(entry))
        cordon = Cordon(CordonCause.CONFIGURATION, note.reason, note.owner, note.until_ms)
        cordons.setdefault(path, [cordon])
    for path in full:
        if path in paths:
            cordons.setdefault(path, []).append(Cordon(CordonCause.WATERMARK))
    return cordons


def entries_in_force(configured: Sequence[str], dynamic: str | None) -> tuple[str, ...]:
    """Return the entries of the dynamic `cordoned.log.dirs` if there is one, else of the file."""
    return tuple(configured) if dynamic is None else cordon_entries(dynamic)
