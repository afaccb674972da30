"""The command line of `spindle kafka metadata-shell`."""

import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from spindle.cli.examples import examples
from spindle.cli.failure import CommandFailed
from spindle.cli.shell.commands import COMMANDS, Shell, run_command
from spindle.cli.shell.nodes import root_of
from spindle.cli.shell.paths import completions
from spindle.cli.shell.reading import read_image
from spindle.common.errors import CorruptLog, UnsupportedMetadata


@click.command(
    "metadata-shell",
    epilog=examples(
        "spindle kafka metadata-shell -s FOLDER/__cluster_metadata-0/00000000000000000000.log"
    ),
)
@click.option(
    "--snapshot",
    "-s",
    "path",
    required=True,
    type=click.Path(path_type=Path),
    help="A snapshot, a segment or the folder of a metadata log, or its log directory.",
)
@click.argument("words", nargs=-1, metavar="[COMMAND...]")
def metadata_shell(path: Path, words: Sequence[str]) -> None:
    """Show the metadata of a cluster as a tree of directories and files.

    With a command (cat, find, ls, tree) runs it; without one asks for commands. Nothing is
    changed, and the node may be running; it may not have committed the latest records yet.
    """
    try:
        shell = Shell(root_of(read_image(path)))
    except UnsupportedMetadata as error:
        raise CommandFailed(f"{path}: {error.finding}") from None
    except (CorruptLog, ValueError) as error:
        raise CommandFailed(str(error)) from None
    if words:
        for line in run_command(shell, words, is_interactive=False):
            click.echo(line)
    else:
        _converse(shell)


def _converse(shell: Shell) -> None:
    _complete_words(shell)
    click.echo("[ Spindle metadata shell; help lists the commands ]")
    while not shell.is_over:
        try:
            line = input(">> " if sys.stdin.isatty() else "")
        except KeyboardInterrupt:
            click.echo("^C")
            continue
        except EOFError:
            return
        if line.strip():
            shell.history.append(line)
        if sys.stdout.isatty():
            shell.width = shutil.get_terminal_size().columns
        try:
            words = shlex.split(line)
        except ValueError as error:
            click.echo(f"{line}: {error}")
            continue
        for text in run_command(shell, words, is_interactive=True):
            click.echo(text)


def _complete_words(shell: Shell) -> None:
    """Let the tab key complete commands and paths, if the terminal can do that."""
    try:
        import readline
    except ImportError:
        return

    def complete(prefix: str, number: int) -> str | None:
        if readline.get_begidx() == 0:
            candidates = [f"{name} " for name in COMMANDS if name.startswith(prefix)]
        else:
            candidates = completions(shell.root, prefix, shell.working_directory)
        return candidates[number] if number < len(candidates) else None

    readline.set_completer_delims(" ")
    readline.set_completer(complete)
    readline.parse_and_bind("tab: complete")
