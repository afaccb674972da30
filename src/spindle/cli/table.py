"""Tables as text for people."""

import re
from collections.abc import Sequence
from typing import Final

_NUMBER: Final = re.compile(r"-|[\d.]+( [KMGTP]?i?B)?")


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


def tabbed_lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as some of Kafka's tools print them: padded columns, each followed by a tab."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "".join(f"{cell:<{width}}\t" for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]
