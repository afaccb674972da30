"""The output of the demo: steps, tables, and progress bars if the output is a terminal."""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from rich.box import ASCII, SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

_WIDTH_WITHOUT_TERMINAL: Final = 110
_INDENT: Final = (0, 0, 0, 2)


class Screen:
    """The output of one demo."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or _console()
        self._step = 0

    @property
    def is_terminal(self) -> bool:
        """True if the output is a terminal."""
        return self._console.is_terminal

    def title(self, text: str) -> None:
        self._console.print(f"[bold]{text}[/bold]")

    @contextlib.contextmanager
    def step(self, text: str) -> Iterator[None]:
        """Announce a step; when it is done, print how long it took."""
        self._step += 1
        self._console.print(f"\n[bold cyan]{self._step}.[/bold cyan] [bold]{text}[/bold]")
        started = time.monotonic()
        yield
        self._console.print(f"  [dim]{time.monotonic() - started:.1f} s[/dim]")

    @contextlib.contextmanager
    def waiting(self, text: str) -> Iterator[None]:
        """Show a spinner while something runs whose progress is unknown."""
        if not self.is_terminal:
            yield
            return
        with self._console.status(text):
            yield

    def say(self, text: str) -> None:
        """Write a line of a step. It may hold rich markup."""
        self._console.print(Padding(text, _INDENT, expand=False))

    def command(self, text: str) -> None:
        """Write a line for copying: never wrapped and never read as markup."""
        self._console.print(f"    {text}", style="green", markup=False, soft_wrap=True)

    def failure(self, text: str) -> None:
        self._console.print("[bold red]The demo failed:[/bold red]", end=" ")
        self._console.print(text, markup=False)

    def table(
        self, columns: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[int] = ()
    ) -> None:
        """Write a table.

        Args:
            numbers: indexes of the columns that hold numbers and are set flush right.
        """
        box = SIMPLE_HEAD if self._console.encoding.startswith("utf") else ASCII
        table = Table(box=box, pad_edge=False)
        for index, name in enumerate(columns):
            table.add_column(name, justify="right" if index in numbers else "left")
        for row in rows:
            table.add_row(*row)
        self._console.print(Padding(table, _INDENT, expand=False))

    @contextlib.contextmanager
    def progress(self, text: str, total: int) -> Iterator[Callable[[int], None]]:
        """Show a progress bar on a terminal only; yield the function that advances it."""
        columns = (
            TextColumn("  {task.description}"),
            BarColumn(bar_width=40),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        with Progress(
            *columns, console=self._console, disable=not self.is_terminal, transient=True
        ) as progress:
            task = progress.add_task(text, total=total)
            yield lambda count: progress.advance(task, count)


def _console() -> Console:
    plain = Console(highlight=False)
    if plain.is_terminal:
        return plain
    return Console(highlight=False, width=_WIDTH_WITHOUT_TERMINAL, soft_wrap=False)
