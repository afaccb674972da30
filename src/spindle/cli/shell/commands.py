"""The commands of the metadata shell: each reads the tree and returns lines."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from spindle.cli.shell.nodes import Directory, Node
from spindle.cli.shell.paths import matches

_GAP: Final = 2
_INDENT: Final = "  "


@dataclass(slots=True)
class Shell:
    """A tree and the user's current directory in it.

    Attributes:
        width: columns of the terminal; None prints one name a line.
        history: the lines so far.
    """

    root: Directory
    width: int | None = None
    working_directory: str = "/"
    history: list[str] = field(default_factory=list)
    is_over: bool = False


class Command(NamedTuple):
    """A command: at least `least` and at most `most` words follow its name."""

    summary: str
    run: Callable[[Shell, Sequence[str]], Iterable[str]]
    words: str = ""
    least: int = 0
    most: int | None = 0
    is_interactive: bool = False


def run_command(shell: Shell, words: Sequence[str], *, is_interactive: bool) -> Iterator[str]:
    """Run a command and return its lines; an error is a line as well, as in Kafka's shell."""
    words = [word for word in words if word]
    if not words:
        return
    name, *rest = words
    known = {n: c for n, c in COMMANDS.items() if is_interactive or not c.is_interactive}
    command = known.get(name)
    if command is None:
        choices = ", ".join(f"'{choice}'" for choice in known)
        yield f"invalid choice: '{name}' (choose from {choices})"
    elif len(rest) < command.least:
        yield "too few arguments"
    elif command.most is not None and len(rest) > command.most:
        yield f"unrecognized arguments: '{' '.join(rest[command.most :])}'"
    else:
        yield from command.run(shell, rest)


def _cat(shell: Shell, targets: Sequence[str]) -> Iterator[str]:
    for target in targets:
        nodes = matches(shell.root, target, shell.working_directory)
        if not nodes:
            yield f"cat: {target}: No such file or directory."
        for match in nodes:
            if isinstance(match.node, Directory):
                yield f"cat: {target}: Is a directory"
            else:
                yield match.node


def _cd(shell: Shell, targets: Sequence[str]) -> Iterator[str]:
    target = targets[0] if targets else "/"
    nodes = matches(shell.root, target, shell.working_directory)
    if not nodes:
        yield f"cd: {target}: no such directory."
    for match in nodes:
        if isinstance(match.node, Directory):
            shell.working_directory = match.path
        else:
            yield f"cd: {target}: not a directory."


def _exit(shell: Shell, targets: Sequence[str]) -> Iterable[str]:
    shell.is_over = True
    return ()


def _find(shell: Shell, targets: Sequence[str]) -> Iterator[str]:
    for target in targets or ["."]:
        nodes = matches(shell.root, target, shell.working_directory)
        if not nodes:
            yield f"find: {target}: no such file or directory."
        for match in nodes:
            yield from _below(target, match.node)


def _below(path: str, node: Node) -> Iterator[str]:
    yield path
    if isinstance(node, Directory):
        for name, child in node.children.items():
            yield from _below(f"{path.rstrip('/')}/{name}", child)


def _help(shell: Shell, targets: Sequence[str]) -> Iterator[str]:
    yield "The metadata of a cluster as a tree of directories and files."
    yield ""
    for name, command in COMMANDS.items():
        yield f"  {name} {command.words}".ljust(24) + command.summary


def _history(shell: Shell, targets: Sequence[str]) -> Iterator[str]:
    count = len(shell.history)
    if targets:
        if not targets[0].isdecimal():
            yield f"history: {targets[0]}: not a number"
            return
        count = min(count, int(targets[0]))
    first = len(shell.history) - count
    for number, line in enumerate(shell.history[first:], first):
        yield f"{number:5d}  {line}"


def _ls(shell: Shell, targets: Sequence[str]) -> Iterator[str]:
    files: list[str] = []
    directories: list[tuple[str, list[str]]] = []
    for target in targets or ["."]:
        nodes = matches(shell.root, target, shell.working_directory)
        if not nodes:
            yield f"ls: {target}: no such file or directory."
        for match in nodes:
            if isinstance(match.node, Directory):
                directories.append((match.last_name, list(match.node.children)))
            else:
                files.append(match.last_name)
    yield from in_columns(files, shell.width)
    needs_names = bool(files) or len(directories) > 1
    is_first = not files
    for name, children in directories:
        if needs_names:
            if children:
                yield from ([] if is_first else [""])
                yield f"{name}:"
            is_first = False
        yield from in_columns(children, shell.width)


def in_columns(names: Sequence[str], width: int | None) -> Iterator[str]:
    """Return names from top to bottom, in as many columns as fit."""
    for columns in range(max(1, (width or 0) // (_GAP + 2)), 0, -1):
        height = -(-len(names) // columns)
        parts = [names[start : start + height] for start in range(0, len(names), height or 1)]
        widths = [max(map(len, part)) + _GAP for part in parts]
        if columns == 1 or (len(parts) == columns and sum(widths) <= (width or 0)):
            for row in range(height):
                cells = [
                    (part[row], w) for part, w in zip(parts, widths, strict=True) if part[row:]
                ]
                yield "".join(f"{cell:<{w}}" for cell, w in cells).rstrip()
            return


def _man(shell: Shell, targets: Sequence[str]) -> Iterator[str]:
    command = COMMANDS.get(targets[0])
    if command is None:
        yield f"man: unknown command {targets[0]}. Type help to get a list of commands."
    else:
        yield f"{targets[0]}: {command.summary}"
        yield ""
        yield f"usage: {targets[0]} {command.words}".rstrip()


def _pwd(shell: Shell, targets: Sequence[str]) -> Iterator[str]:
    yield shell.working_directory


def _tree(shell: Shell, targets: Sequence[str]) -> Iterator[str]:
    for target in targets:
        nodes = matches(shell.root, target, shell.working_directory)
        if not nodes:
            yield f"tree: {target}: No such file or directory."
        for match in nodes:
            yield from _drawn(match.node, "")


def _drawn(node: Node, indent: str) -> Iterator[str]:
    if not isinstance(node, Directory):
        yield f"{indent}{node}"
        return
    for name, child in node.children.items():
        yield f"{indent}{name}:"
        yield from _drawn(child, indent + _INDENT)


COMMANDS: Final = {
    "cat": Command("Show the contents of metadata files.", _cat, "PATH...", 1, None),
    "cd": Command("Set the current working directory.", _cd, "[PATH]", 0, 1, True),
    "exit": Command("Exit the metadata shell.", _exit, is_interactive=True),
    "find": Command("Search for nodes in the directory hierarchy.", _find, "[PATH...]", 0, None),
    "help": Command("Display this help message.", _help, is_interactive=True),
    "history": Command("Print command history.", _history, "[COUNT]", 0, 1, True),
    "ls": Command("List metadata nodes.", _ls, "[PATH...]", 0, None),
    "man": Command("Show the help text for a specific command.", _man, "COMMAND", 1, 1, True),
    "pwd": Command("Print the current working directory.", _pwd, is_interactive=True),
    "tree": Command(
        "Show the contents of metadata nodes in a tree structure.", _tree, "PATH...", 1, None
    ),
}
