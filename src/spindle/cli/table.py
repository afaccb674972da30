"""Tables as text for people."""

import re
from collections.abc import Sequence
from typing import Final

from spindle.cli.terminal import shortened

_NUMBER: Final = re.compile(r"-|[\d.]+( [KMGTP]?i?B|%)?")


def table_lines(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table: columns of equal width, numbers to the right.

    Args:
        head: titles of the columns; each row has as many cells.
    """
    columns = list(zip(head, *rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    is_number = [all(map(_NUMBER.fullmatch, cells)) for _, *cells in columns]
    return [
        "  ".join(
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(row, widths, is_number, strict=True)
        ).rstrip()
        for row in (head, *rows)
    ]


def narrowed_table_lines(
    head: Sequence[str], rows: Sequence[Sequence[str]], paths: str, width: int | None
) -> list[str]:
    """Return the lines of a table, with shorter paths if it is too wide otherwise.

    Args:
        paths: the title of the column of paths. They keep as many characters as the title has,
            also if the table is too wide then.
        width: columns of the terminal; None sets no limit.
    """
    lines = table_lines(head, rows)
    excess = 0 if width is None else max(map(len, lines)) - width
    if excess <= 0:
        return lines
    column = head.index(paths)
    room = max(len(paths), max(len(row[column]) for row in rows) - excess)
    narrowed = [
        [shortened(cell, room) if number == column else cell for number, cell in enumerate(row)]
        for row in rows
    ]
    return table_lines(head, narrowed)


def tabbed_lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as some of Kafka's tools print them: padded columns, each followed by a tab."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "".join(f"{cell:<{width}}\t" for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]
