"""Wrap the paragraphs of documents at 100 characters: `make docs-wrap`.

`python -m documents.wrap FILE...` wraps these files, and without a name all documents. Only
paragraphs and list items with a longer line are wrapped anew. Tables, code and headings stay as
they are, and no code in backticks and no link is divided.
"""

import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Final

PROJECT: Final = Path(__file__).parents[2]
FOLDERS: Final = ("docs", "examples", "deploy", "benchmarks")
NOT_WRAPPED: Final = ("CHANGELOG.md", "benchmarks/RESULTS.md", "benchmarks/SCALE.md")
"""A list whose entries have one line each, and pages that programs write."""
WIDTH: Final = 100
_GLUE: Final = "\x00"
_ITEM: Final = re.compile(r"(\s*)([*+-]|\d+[.)]) +")
_STAYS: Final = re.compile(r"\s*(#|\||>|<|!\[|:::|---|\[[^\]]+\]: )")
_WHOLE: Final = re.compile(r"`[^`]+`|\[[^\]]*\]\([^)]*\)")
_MARKUP: Final = re.compile(r" (?=(?:[*+-]|\d+[.)]|#+|>|\|)(?: |$))")
"""A space before a word that would begin a list or a heading at the start of a line."""


def wrapped(text: str) -> str:
    """Return a document with its long paragraphs wrapped."""
    return "\n".join(line for block in _blocks(text.split("\n")) for line in _wrap(block))


def _blocks(lines: list[str]) -> Iterator[list[str]]:
    """Yield the lines in groups that are wrapped together."""
    block: list[str] = []
    fence = ""
    for line in lines:
        marker = re.match(r"\s*(```+|~~~+)", line)
        if fence or marker:
            if block:
                yield block
                block = []
            if marker and not fence:
                fence = marker.group(1)
            elif marker and line.strip() == fence:
                fence = ""
            yield ["", line]
            continue
        if block and (not line.strip() or _ITEM.match(line) or _STAYS.match(line)):
            yield block
            block = []
        if not line.strip() or _STAYS.match(line):
            yield ["", line]
        else:
            block.append(line)
    if block:
        yield block


def _wrap(block: list[str]) -> list[str]:
    if block[0] == "":  # a line that stays as it is
        return block[1:]
    if max(map(len, block)) <= WIDTH or any(line.endswith(("  ", "\\")) for line in block):
        return block
    item = _ITEM.match(block[0])
    first = item.group(0) if item else re.match(r"\s*", block[0]).group(0)  # type: ignore[union-attr]
    text = " ".join([block[0][len(first) :], *map(str.strip, block[1:])])
    text = _WHOLE.sub(lambda match: match.group(0).replace(" ", _GLUE), text)
    text = _MARKUP.sub(_GLUE, text)
    lines = textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=" " * len(first),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(_GLUE, " ") for line in lines]


def documents() -> Iterator[Path]:
    """Yield the documents of the project that are wrapped."""
    paths = [*PROJECT.glob("*.md"), *(p for f in FOLDERS for p in (PROJECT / f).rglob("*.md"))]
    for path in paths:
        if str(path.relative_to(PROJECT)) not in NOT_WRAPPED:
            yield path


def main() -> None:
    for path in map(Path, sys.argv[1:]) if sys.argv[1:] else documents():
        path.write_text(wrapped(path.read_text()))


if __name__ == "__main__":
    main()
