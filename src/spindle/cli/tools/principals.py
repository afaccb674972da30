"""Principals in the options of tools: `User:NAME`."""

from spindle.cli.tools.failures import ToolFailed
from spindle.cli.tools.options import Options


def principals(options: Options, option: str) -> list[str]:
    """Return the principals of an option, each of them once.

    Raises:
        ToolFailed: one of them is not a principal.
    """
    given = [text.strip() for text in options.all(option)]
    for text in given:
        kind, _, name = text.partition(":")
        if not (kind and name):
            raise ToolFailed(
                f"expected a string in format principalType:principalName but got {text}",
                plainly=f"--{option} {text}: write User:NAME",
            )
    return list(dict.fromkeys(given))
