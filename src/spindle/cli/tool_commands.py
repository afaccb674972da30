"""Kafka's tools among the commands of `spindle`: where each is, and what it is for."""

from typing import Final

_TOOLS: Final = "spindle.cli.tools"

TOOL_COMMANDS: Final = {
    "home": ("spindle.cli.home.command:home", "Write a folder with Kafka's scripts."),
    "topics": (f"{_TOOLS}.topics:topics", "Create, list, describe, extend and delete topics."),
    "configs": (f"{_TOOLS}.configs:configs", "Show and change configurations and quotas."),
    "groups": (f"{_TOOLS}.groups:groups", "List, describe, reset and delete consumer groups."),
    "log-dirs": (f"{_TOOLS}.log_dirs:log_dirs", "Show what lies in the log directories."),
    "get-offsets": (f"{_TOOLS}.get_offsets:get_offsets", "Show offsets of partitions."),
    "delete-records": (
        f"{_TOOLS}.delete_records:delete_records",
        "Delete the oldest records of partitions.",
    ),
    "quorum": (f"{_TOOLS}.quorum:quorum", "Show and change the metadata quorum."),
    "cluster": (f"{_TOOLS}.cluster:cluster", "Show the cluster's id and nodes; forget a broker."),
    "features": (f"{_TOOLS}.features:features", "Show and change feature levels."),
    "api-versions": (f"{_TOOLS}.api_versions:api_versions", "Show what brokers serve."),
    "leader-election": (f"{_TOOLS}.leader_election:leader_election", "Elect leaders."),
    "produce": (f"{_TOOLS}.produce:produce", "Send the lines of standard input."),
    "consume": (f"{_TOOLS}.consume:consume", "Print the records of topics."),
    "dump-log": (f"{_TOOLS}.dump_log:dump_log", "Show what is in segments and indexes."),
    "metadata-shell": (
        "spindle.cli.shell.command:metadata_shell",
        "Look at the metadata in a snapshot or log.",
    ),
    "reassign": (f"{_TOOLS}.reassign:reassign", "Move replicas between brokers and directories."),
    "produce-perf": (f"{_TOOLS}.produce_perf:produce_perf", "Measure sending."),
    "consume-perf": (f"{_TOOLS}.consume_perf:consume_perf", "Measure reading."),
}
