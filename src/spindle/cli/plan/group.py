"""`spindle plan`: the commands of the group, with import paths."""

from typing import Final

from spindle.cli.examples import examples
from spindle.cli.lazy import LazyGroup

_PLAN: Final = "spindle.cli.plan"
_SAMPLING: Final = "spindle.cli.history"

plan = LazyGroup(
    "plan",
    help="Plan moves of replicas between log directories and brokers. Nothing is moved.",
    sections={
        "Commands": {
            "balance": (f"{_PLAN}.goal_commands:balance_command", "Fill directories equally."),
            "drain": (f"{_PLAN}.goal_commands:drain_command", "Empty a broker or a directory."),
            "decommission": (
                f"{_PLAN}.goal_commands:decommission_command",
                "Empty a broker that will leave the cluster.",
            ),
            "heal": (
                f"{_PLAN}.goal_commands:heal_command",
                "Relieve directories that are too full or have failed.",
            ),
            "what-if": (
                f"{_PLAN}.what_if_command:what_if_command",
                "Plan for added or removed brokers and directories.",
            ),
        },
    },
    epilog=examples("spindle plan balance", "spindle plan drain 2:/disk2 --out rounds"),
    former={
        "record": ("spindle history record", f"{_SAMPLING}.record_command:record_command"),
        "forecast": ("spindle history forecast", f"{_SAMPLING}.forecast_command:forecast_command"),
    },
)
