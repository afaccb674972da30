"""`spindle kafka`: the commands with the options and the results of Kafka's scripts."""

from typing import Final

from spindle.cli.examples import examples
from spindle.cli.lazy import LazyGroup
from spindle.cli.tools.kafka_names import KAFKA_TOOLS

_FILES: Final = ("storage", "dump-log", "metadata-shell")

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
