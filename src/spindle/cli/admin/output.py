"""Output of the commands for people: rows as a table or as JSON, and questions."""

import json
import sys
from collections.abc import Mapping, Sequence

import click

from spindle.cli.table import table_lines

Cell = str | int | float | None

YES = click.option("-y", "--yes", is_flag=True, help="Do not ask.")


def show_rows(
    as_json: bool, columns: Mapping[str, str], rows: Sequence[Sequence[Cell]], nothing: str
) -> None:
    """Print rows as a table, or as a JSON list of objects.

    Args:
        columns: the key in JSON and the title of each column.
        rows: a value for each column; None is `-` in the table and null in JSON.
        nothing: the sentence on standard error where there are no rows.
    """
    if as_json:
        click.echo(json.dumps([dict(zip(columns, row, strict=True)) for row in rows]))
    elif rows:
        cells = [["-" if cell is None else str(cell) for cell in row] for row in rows]
        click.echo("\n".join(table_lines(list(columns.values()), cells)))
    else:
        click.echo(nothing, err=True)


def confirm(question: str, is_confirmed: bool) -> None:
    """Ask a question where standard input is a terminal.

    Raises:
        click.Abort: the answer is not yes.
    """
    if not is_confirmed and sys.stdin.isatty():
        click.confirm(question, abort=True)
