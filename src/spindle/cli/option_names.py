"""The options of commands in texts of `spindle.operations`, which name Python arguments."""

import re
from typing import Final

_OPTIONS: Final = {
    "cancel_balance": "the same command with --cancel",
    "cancel_drain": "the same command with --cancel",
    "heal": "spindle heal",
    "capacity_bytes": "--capacity",
    "keeps_racks=False": "--allow-rack-loss",
    "max_fill": "--max-fill",
    "state": "--state",
    "then": "--then",
}

_ARGUMENT: Final = re.compile(f"`({'|'.join(map(re.escape, _OPTIONS))})`")


def with_option_names(text: str) -> str:
    """Return a text of an operation for a command: with options in place of arguments."""
    text = text.replace("make the same call", "give the same command")
    text = text.replace("the same call", "the same command")
    return _ARGUMENT.sub(lambda argument: _OPTIONS[argument[1]], text)
