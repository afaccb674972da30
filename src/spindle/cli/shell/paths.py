"""Paths and patterns in the tree: `.`, `..`, `*`, `?`, `{a,b}` and `\\` before any of them."""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from spindle.cli.shell.nodes import Directory, Node

_TOKEN: Final = re.compile(r"\\(.)|(.)", re.DOTALL)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)


class PathMatch(NamedTuple):
    """A node and the names that lead to it."""

    names: tuple[str, ...]
    node: Node

    @property
    def last_name(self) -> str:
        return self.names[-1] if self.names else "/"

    @property
    def path(self) -> str:
        return "/" + "/".join(self.names)


def components(path: str, working_directory: str) -> list[str]:
    """Return the names of a path from the root on, without dots."""
    whole = path if path.startswith("/") else f"{working_directory}/{path}"
    names: list[str] = []
    for name in whole.split("/"):
        if name == "..":
            del names[-1:]
        elif name not in ("", "."):
            names.append(name)
    return names


def matches(root: Directory, path: str, working_directory: str) -> list[PathMatch]:
    """Return the nodes that match a path or pattern, in order."""
    return list(_matches(PathMatch((), root), components(path, working_directory)))


def _matches(start: PathMatch, patterns: list[str]) -> Iterator[PathMatch]:
    if not patterns:
        yield start
        return
    if not isinstance(start.node, Directory):
        return
    first, rest = patterns[0], patterns[1:]
    children = start.node.children
    pattern = expression(first)
    if pattern is None:
        # Try the name as it is, before removing backslashes: the names of quotas contain some.
        spellings = (first, _ESCAPED.sub(r"\1", first))
        names = [name for name in spellings if name in children][:1]
    else:
        names = [name for name in children if pattern.fullmatch(name)]
    for name in names:
        yield from _matches(PathMatch((*start.names, name), children[name]), rest)


def expression(pattern: str) -> re.Pattern[str] | None:
    """Return the pattern of one name; None if the name must match literally or is malformed."""
    is_pattern = is_group = False
    text = ""
    for escaped, plain in _TOKEN.findall(pattern):
        if escaped:
            text += re.escape(escaped)
        elif plain in "?*":
            is_pattern = True
            text += "." if plain == "?" else ".*"
        elif plain == "{":
            if is_group:
                return None
            is_pattern = is_group = True
            text += "(?:"
        elif plain == "," and is_group:
            text += "|"
        elif plain == "}" and is_group:
            is_group = False
            text += ")"
        else:
            text += re.escape(plain)
    return re.compile(text, re.DOTALL) if is_pattern and not is_group else None


def completions(root: Directory, prefix: str, working_directory: str) -> list[str]:
    """Return the possible continuations of a path; directories end with a slash."""
    head, slash, last = prefix.rpartition("/")
    directories = matches(root, head + slash or ".", working_directory)
    node = directories[0].node if len(directories) == 1 else None
    if not isinstance(node, Directory):
        return []
    return [
        f"{head}{slash}{name}{'/' if isinstance(child, Directory) else ''}"
        for name, child in node.children.items()
        if name.startswith(last)
    ]
