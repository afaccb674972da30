"""Notes of cordons: who cordoned a log directory, why, and until when.

The notes of a broker are one dynamic value, `spindle.cordon.notes`, a JSON list beside
`cordoned.log.dirs`, which alone says what is cordoned. A note belongs to one entry of that list. It
ends with the entry: a later cordon of the same directory never gets an older note.
"""

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final

from spindle.common.errors import ConfigError
from spindle.config.values import ConfigValue, invalid_value

_TEXTS: Final = ("path", "reason", "owner")
_TIMES: Final = ("since_ms", "until_ms")
_LATEST_MS: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class CordonNote:
    """The note of one entry of `cordoned.log.dirs`.

    Attributes:
        path: the entry as it is written there.
        since_ms, until_ms: wall-clock times; the broker removes the cordon at `until_ms`.
    """

    path: str
    reason: str | None = None
    owner: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None

    def is_expired(self, now_ms: int) -> bool:
        return self.until_ms is not None and self.until_ms <= now_ms


def parse_notes(text: str) -> tuple[CordonNote, ...]:
    """Return the notes in a value of `spindle.cordon.notes`; fields that are not known are ignored.

    Raises:
        ConfigError: the value is malformed; the text names the fault.
    """
    if not text.strip():
        return ()
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"not JSON: {error}") from None
    if not isinstance(rows, list):
        raise ConfigError("not a list of notes")
    notes = tuple(_note(row) for row in rows)
    paths = [note.path for note in notes]
    if len(set(paths)) < len(paths):
        raise ConfigError("two notes have the same path")
    return notes


def _note(row: Any) -> CordonNote:
    if not isinstance(row, dict) or not isinstance(row.get("path"), str) or not row["path"]:
        raise ConfigError("a note is an object with the path of a log directory")
    for names, kind, wanted in ((_TEXTS, str, "a text"), (_TIMES, int, "a time in milliseconds")):
        for name in names:
            value = row.get(name)
            if value is None or (isinstance(value, kind) and not isinstance(value, bool)):
                continue
            raise ConfigError(f"the {name} of the note of {row['path']} is not {wanted}")
    for name in _TEXTS:
        try:
            (row.get(name) or "").encode()
        except UnicodeEncodeError as error:
            raise ConfigError(f"the {name} of a note is not valid Unicode: {error}") from None
    for name in _TIMES:
        if not 0 <= (row.get(name) or 0) <= _LATEST_MS:
            raise ConfigError(
                f"the {name} of the note of {row['path']} is {row[name]}, which is not between "
                f"0 and {_LATEST_MS} ms"
            )
    return CordonNote(
        row["path"], row.get("reason"), row.get("owner"), row.get("since_ms"), row.get("until_ms")
    )


def notes_text(notes: Iterable[CordonNote]) -> str | None:
    """Return the value for notes; None for no notes, whose key is to be deleted."""
    rows = [
        {name: value for name in (*_TEXTS, *_TIMES) if (value := getattr(note, name)) is not None}
        for note in notes
    ]
    return json.dumps(rows, separators=(",", ":"), ensure_ascii=False) if rows else None


def kept_notes(notes: Iterable[CordonNote], entries: Collection[str]) -> tuple[CordonNote, ...]:
    """Return the notes whose cordon is one of these entries of `cordoned.log.dirs`."""
    return tuple(note for note in notes if note.path in entries)


class CordonNotes:
    """Notes of cordons as a JSON list."""

    __slots__ = ()

    def check(self, name: str, value: ConfigValue, /) -> None:
        try:
            parse_notes(value if isinstance(value, str) else "")
        except ConfigError as error:
            raise invalid_value(name, value, str(error)) from None

    def __str__(self) -> str:
        return '[{"path":...,"reason":...,"owner":...,"since_ms":...,"until_ms":...},...]'
