"""The groups of commands of `spindle`, with the import path of each command."""

from typing import Final

from spindle.cli.examples import examples
from spindle.cli.lazy import LazyGroup
from spindle.cli.tools.kafka_names import KAFKA_TOOLS

_DISKS: Final = "spindle.cli.disks"
_PLAN: Final = "spindle.cli.plan"
_HISTORY: Final = "spindle.cli.history"
_EXPORT: Final = "spindle.cli.export"
_FILES: Final = ("storage", "dump-log", "metadata-shell")
"""The commands of `spindle kafka` that need no cluster."""

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
                f"{_DISKS}.cordon_commands:cordon_command",
                "Keep new replicas away from a directory.",
            ),
            "uncordon": (
                f"{_DISKS}.cordon_commands:uncordon_command",
                "Allow new replicas in a directory again.",
            ),
            "add": (f"{_DISKS}.alter_commands:add_command", "Add a directory to a running broker."),
            "online": (f"{_DISKS}.alter_commands:online_command", "Use a failed directory again."),
            "rebuild": (
                f"{_DISKS}.rebuild_command:rebuild_command",
                "Copy damaged replicas again from their leaders.",
            ),
            "remove": (
                f"{_DISKS}.alter_commands:remove_command",
                "Remove a directory without replicas.",
            ),
        },
    },
    epilog=examples("spindle disks list", "spindle disks watch"),
    former={
        "readmit": ("spindle disks online", f"{_DISKS}.alter_commands:online_command"),
        "retire": ("spindle disks remove", f"{_DISKS}.alter_commands:remove_command"),
    },
)

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
        "record": ("spindle history record", f"{_HISTORY}.record_command:record_command"),
        "forecast": ("spindle history forecast", f"{_HISTORY}.forecast_command:forecast_command"),
    },
)

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

export = LazyGroup(
    "export",
    help="Write topics into tables, and look after the tables. 'spindle export TOPIC TABLE' is "
    "short for 'spindle export topic TOPIC TABLE'.",
    sections={
        "Commands": {
            "topic": (
                f"{_EXPORT}.command:export",
                "Write a topic into a Delta, Iceberg or Parquet table, once or as it grows.",
            ),
            "status": (
                f"{_EXPORT}.status_command:status",
                "Show how far tables are behind their topics.",
            ),
            "retry": (
                f"{_EXPORT}.retry_command:retry_command",
                "Show dead letters, and move mended ones into their table.",
            ),
        },
    },
    default="topic",
    epilog=examples(
        "spindle export events ./table -b 127.0.0.1:9092 --follow",
        "spindle export status ./table -b 127.0.0.1:9092",
    ),
)

kafka = LazyGroup(
    "kafka",
    help="Run a command with the options and results of Kafka's script: kafka-topics.sh is "
    "'spindle kafka topics'.",
    sections={
        "Work with a cluster (-b HOST:PORT, or SPINDLE_BOOTSTRAP)": {
            tool.name: (tool.path, tool.summary) for tool in KAFKA_TOOLS if tool.name not in _FILES
        },
        "Look into files": {
            tool.name: (tool.path, tool.summary) for tool in KAFKA_TOOLS if tool.name in _FILES
        },
    },
    epilog=examples(
        "spindle kafka topics --describe --topic orders",
        "spindle kafka consumer-groups --describe --group billing",
    ),
)
