"""The commands of `spindle` by subject: where each is, and a sentence about it."""

from typing import Final

_CLI: Final = "spindle.cli"
_TOOLS: Final = "spindle.cli.tools"

SECTIONS: Final = {
    "Run nodes": {
        "up": (f"{_CLI}.up.command:up", "Start a cluster on this machine to try things out."),
        "server": (f"{_CLI}.server:server", "Run the node of a property file."),
        "storage": (f"{_CLI}.storage.commands:storage", "Format and inspect log directories."),
        "home": (f"{_CLI}.kafka_home.command:home", "Write a folder with Kafka's scripts."),
        "completion": (f"{_CLI}.completion:completion", "Print the completion script of a shell."),
    },
    "Work with a cluster (-b HOST:PORT, or SPINDLE_BOOTSTRAP)": {
        "status": (
            f"{_CLI}.status.command:status",
            "Show brokers, directories and what needs attention.",
        ),
        "disks": (f"{_CLI}.disks.group:disks", "Show and change log directories."),
        "plan": (f"{_CLI}.plan.group:plan", "Plan where replicas should be, in rounds of moves."),
        "drain": (f"{_CLI}.drain:drain_command", "Empty a broker or a log directory."),
        "balance": (f"{_CLI}.balance:balance_command", "Fill log directories equally."),
        "heal": (f"{_CLI}.heal.command:heal_command", "Keep directories within limits."),
        "history": (f"{_CLI}.sampling.group:history", "Record sizes, and forecast full disks."),
        "topic": (f"{_CLI}.topic:topic", "Create, list, describe, change and delete topics."),
        "log-dirs": (f"{_TOOLS}.log_dirs:log_dirs", "Show size and free space of log directories."),
        "produce": (f"{_TOOLS}.produce:produce", "Send the lines of standard input."),
        "consume": (f"{_TOOLS}.consume:consume", "Print the records of topics."),
        "groups": (f"{_TOOLS}.groups:groups", "List, describe, reset and delete consumer groups."),
        "all-groups": (f"{_TOOLS}.all_groups:all_groups", "List the groups of every type."),
        "transactions": (
            f"{_TOOLS}.transactions:transactions",
            "List and describe transactions; find and end those that hang.",
        ),
        "delegation-tokens": (
            f"{_TOOLS}.delegation_tokens:delegation_tokens",
            "Create, renew, expire and show delegation tokens.",
        ),
        "configs": (f"{_TOOLS}.configs:configs", "Show and change configurations and quotas."),
        "acls": (f"{_TOOLS}.acls:acls", "List, add and remove ACLs."),
        "topics": (f"{_TOOLS}.topics:topics", "Work on topics with the options of kafka-topics."),
        "get-offsets": (f"{_TOOLS}.get_offsets:get_offsets", "Show offsets of partitions."),
        "delete-records": (
            f"{_TOOLS}.delete_records:delete_records",
            "Delete the oldest records of partitions.",
        ),
        "reassign": (f"{_TOOLS}.reassign:reassign", "Move replicas between brokers."),
        "leader-election": (f"{_TOOLS}.leader_election:leader_election", "Elect leaders."),
        "cluster": (f"{_TOOLS}.cluster:cluster", "Show id and nodes; forget a broker."),
        "quorum": (f"{_TOOLS}.quorum:quorum", "Show and change the metadata quorum."),
        "features": (f"{_TOOLS}.features:features", "Show and change feature levels."),
        "api-versions": (f"{_TOOLS}.api_versions:api_versions", "Show the APIs of brokers."),
        "produce-perf": (f"{_TOOLS}.produce_perf:produce_perf", "Measure how fast records go in."),
        "consume-perf": (f"{_TOOLS}.consume_perf:consume_perf", "Measure how fast records go out."),
    },
    "Work with Spark (the extra spindle-log[spark])": {
        "export": (
            f"{_CLI}.export.command:export",
            "Write topics into a Delta, Iceberg or Parquet table.",
        ),
    },
    "Look into files": {
        "audit": (
            f"{_CLI}.audit.command:audit",
            "Look for damage in log directories, and plan repairs.",
        ),
        "dump-log": (f"{_TOOLS}.dump_log:dump_log", "Show the content of segments and indexes."),
        "metadata-shell": (
            f"{_CLI}.shell.command:metadata_shell",
            "Browse the metadata in a snapshot or log.",
        ),
    },
}
