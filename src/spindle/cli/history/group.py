"""`spindle history`: the commands of the group, with import paths."""

from typing import Final

from spindle.cli.examples import examples
from spindle.cli.lazy import LazyGroup

_HISTORY: Final = "spindle.cli.history"

history = LazyGroup(
    "history",
    help="Record how log directories fill, and forecast when they are full.",
    sections={
        "Commands": {
            "record": (
                f"{_HISTORY}.record_command:record_command",
                "Write sizes and offsets into a folder, at intervals.",
            ),
            "forecast": (
                f"{_HISTORY}.forecast_command:forecast_command",
                "Show when each directory is full.",
            ),
        },
    },
    epilog=examples("spindle history record samples --once", "spindle history forecast samples"),
)
