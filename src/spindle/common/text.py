"""Numbers, sizes, durations, names and lists as text for people."""

from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from typing import Final

_MINUTE_S: Final = 60
_HOUR_S: Final = 3600
_DAY_S: Final = 86_400
_MAX_S: Final = 3650 * _DAY_S


def count_noun(count: int, noun: str, plural: str | None = None) -> str:
    """Return a number and its noun: `1 move`, `2 moves`, `1,000 batches`.

    Args:
        plural: irregular plural of the noun.
    """
    many = plural or f"{noun}s"
    return f"{count:,} {noun if count == 1 else many}"


def join_first(names: Sequence[object], most: int) -> str:
    """Return up to the given number of names, and the count of the others: `a, b and 3 more`."""
    return _with_rest(map(str, names[:most]), len(names) - most)


def error_text(error: BaseException) -> str:
    """Return the text of an error; that of an `OSError` has no number: `/disk1/t: Not a directory`.

    An error without a text is named by its type.
    """
    cause = getattr(error, "reason", None)  # urllib wraps the error of the connection
    if isinstance(cause, OSError):
        return error_text(cause)
    if not isinstance(error, OSError) or not error.strerror:
        return str(error) or type(error).__name__
    return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"


def duration_text(time_s: float) -> str:
    """Return a duration as 0:34 or 2:05:09."""
    whole_s = int(time_s + 0.5)
    hours, rest_s = divmod(whole_s, _HOUR_S)
    minutes, seconds = divmod(rest_s, _MINUTE_S)
    if hours:
        return f"{hours}:{minutes:02d}:{seconds:02d}"
    return f"{minutes}:{seconds:02d}"


def span_text(span_s: float) -> str:
    """Return a span with one unit: `35 s`, `12.0 min`, `7.5 h`, `5.2 d`."""
    if span_s >= _MAX_S:
        return "10 years or more"
    for unit_s, unit in ((_DAY_S, "d"), (_HOUR_S, "h"), (_MINUTE_S, "min")):
        if span_s >= 2 * unit_s:
            return f"{span_s / unit_s:.1f} {unit}"
    return f"{span_s:.0f} s"


_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def size_text(size_bytes: int) -> str:
    """Return a size with a binary unit, such as `1.5 GiB`; `-` for a negative (unknown) one."""
    if size_bytes < 0:
        return "-"
    size = float(size_bytes)
    for unit in _UNITS:
        if size < 1024 or unit == _UNITS[-1]:
            return f"{size_bytes} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError("the last unit takes every size")


_SHOWN_CHARACTERS: Final = 100
MAX_NAMED: Final = 20
"""Up to this many things of one kind are named in the log at once; the rest is a number."""


def quoted(text: str) -> str:
    """Return a text of a client in quotation marks, on one line and of bounded length."""
    return repr(text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}...")


def listed(names: Collection[str]) -> str:
    """Return the names in quotation marks: the first 20, and the number of the others."""
    return _with_rest(map(quoted, islice(names, MAX_NAMED)), len(names) - MAX_NAMED)


def printable(text: str) -> str:
    r"""Return a text with escapes instead of control and invisible characters.

    Control characters, marks that turn the direction of writing, and bytes of a file name that are
    no Unicode become escapes such as `\x1b`. All other characters stay.
    """
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else _escape(character) for character in text
    )


def _escape(character: str) -> str:
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _with_rest(shown: Iterable[str], more: int) -> str:
    text = ", ".join(shown)
    return f"{text} and {more} more" if more > 0 else text
