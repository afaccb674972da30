"""Lines on a terminal: colours, bars, and replacements for characters that it cannot show."""

import os
import sys
from collections.abc import Iterable
from textwrap import wrap
from typing import Final, NamedTuple

from spindle.common.text import printable

BAD: Final = "red"
UNUSUAL: Final = "yellow"
TITLE: Final = "bold"
QUIET: Final = "dim"
_FORCE_COLOURS: Final = {"FORCE_COLOR", "TTY_COMPATIBLE"}
"""Variables with which `rich` treats a pipe as a terminal."""
_FULL, _EMPTY = "█░"
_COLOURS: Final = {f"{_FULL}+": "cyan", f"{_EMPTY}+": QUIET}
_PLAIN: Final = str.maketrans({_FULL: "#", _EMPTY: ".", "→": ">"})


class Line(NamedTuple):
    """One line, and its style on a terminal."""

    text: str
    style: str = ""


def blocks_text(part: float, length: int, start: float = 0.0) -> str:
    """Return a bar of blocks.

    Args:
        part: the filled share, from 0 to 1; beyond it the bar is full.
        length: of the whole bar, in characters.
        start: the share at which the filled part begins.
    """
    first = min(length, round(length * max(0.0, start)))
    last = min(length, max(first, round(length * (start + part))))
    return _EMPTY * first + _FULL * (last - first) + _EMPTY * (length - last)


def shortened(path: str, width: int) -> str:
    """Return the end of a path that has at most `width` characters."""
    return path if len(path) <= width else f"~{path[len(path) - width + 1 :]}"


def wrapped(text: str, width: int | None, indent: int) -> list[str]:
    """Wrap a text to the columns of a terminal.

    Args:
        width: None sets no limit.
        indent: spaces before all lines but the first.
    """
    if width is None:
        return [text]
    return wrap(
        text,
        width,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def shows_blocks(encoding: str | None) -> bool:
    """Return whether an encoding has the blocks of which a bar is made."""
    return (encoding or "").lower().replace("-", "").startswith("utf")


def show(lines: Iterable[Line]) -> None:
    """Print lines: in colours on a terminal, if `NO_COLOR` is not set, and plain elsewhere."""
    encoding = sys.stdout.encoding or "utf-8"
    texts = []
    for line in lines:
        text = printable(line.text)
        if not shows_blocks(encoding):
            text = text.translate(_PLAIN).encode(encoding, "backslashreplace").decode(encoding)
        texts.append(Line(text, line.style))
    if not sys.stdout.isatty() and not os.environ.keys() & _FORCE_COLOURS:
        sys.stdout.writelines(f"{line.text}\n" for line in texts)
        return
    from rich.console import Console  # its import takes longer than many commands
    from rich.text import Text

    console = Console(highlight=False)
    for line in texts:
        shown = Text(line.text, line.style, no_wrap=True)
        if not line.style:
            for pattern, colour in _COLOURS.items():
                shown.highlight_regex(pattern, colour)
        console.print(shown, soft_wrap=True)
