"""`spindle disks`: the commands of the group, with import paths."""

from typing import Final

from spindle.cli.examples import examples
from spindle.cli.lazy import LazyGroup

_DISKS: Final = "spindle.cli.disks"

disks = LazyGroup(
    "disks",
    help="Show the log directories of a running cluster, and change them.",
    sections={
        "Commands": {
            "list": (f"{_DISKS}.list_command:list_command", "Show directories, space and state."),
            "watch": (
                f"{_DISKS}.watch_command:watch_command",
                "Show traffic, moves and latencies, live.",
            ),
            "cordon": (
                f"{_DISKS}.cordon_command:cordon_command",
                "Keep new replicas away from a directory.",
            ),
            "uncordon": (
                f"{_DISKS}.uncordon_command:uncordon_command",
                "Allow new replicas in a directory again.",
            ),
            "add": (f"{_DISKS}.add_command:add_command", "Add a directory to a running broker."),
            "online": (f"{_DISKS}.online_command:online_command", "Use a failed directory again."),
            "rebuild": (
                f"{_DISKS}.rebuild_command:rebuild_command",
                "Copy damaged replicas again from their leaders.",
            ),
            "remove": (
                f"{_DISKS}.remove_command:remove_command",
                "Remove a directory without replicas.",
            ),
        },
    },
    epilog=examples("spindle disks list", "spindle disks watch"),
    former={
        "readmit": ("spindle disks online", f"{_DISKS}.online_command:online_command"),
        "retire": ("spindle disks remove", f"{_DISKS}.remove_command:remove_command"),
    },
)
