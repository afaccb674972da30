"""The commands of `spindle` by subject, with import path and summary."""

from typing import Final

from spindle.cli.tools.kafka_names import FORMER_NAMES, KAFKA_TOOLS

_CLI: Final = "spindle.cli"
_ADMIN: Final = "spindle.cli.admin"

SECTIONS: Final = {
    "Run nodes": {
        "up": (f"{_CLI}.up.command:up", "Start a cluster on this machine to try things out."),
        "server": (f"{_CLI}.server:server", "Run the node of a property file."),
        "storage": (f"{_CLI}.storage.commands:storage", "Format and inspect log directories."),
        "completion": (f"{_CLI}.completion:completion", "Print the completion script of a shell."),
    },
    "Work with a cluster (-b HOST:PORT, or SPINDLE_BOOTSTRAP)": {
        "status": (
            f"{_CLI}.status.command:status",
            "Show brokers, directories and what needs attention.",
        ),
        "console": (
            "spindle.console.command:console",
            "Show the cluster in a browser, live.",
        ),
        "topic": (f"{_ADMIN}.topics:topic", "Create, list, describe, change and delete topics."),
        "produce": (f"{_ADMIN}.produce:produce", "Send the lines of standard input."),
        "consume": (f"{_ADMIN}.consume:consume", "Print the records of topics."),
        "groups": (
            f"{_ADMIN}.groups:groups",
            "List, describe and delete groups; reset their offsets.",
        ),
        "transactions": (
            f"{_ADMIN}.transactions:transactions",
            "List, describe and end transactions; find those that hang.",
        ),
    },
    "Work on disks (-b HOST:PORT, or SPINDLE_BOOTSTRAP)": {
        "disks": (f"{_CLI}.command_groups:disks", "Show and change log directories."),
        "plan": (
            f"{_CLI}.command_groups:plan",
            "Plan where replicas should be, in rounds of moves.",
        ),
        "drain": (f"{_CLI}.drain:drain_command", "Empty a broker or a log directory."),
        "balance": (f"{_CLI}.balance:balance_command", "Balance log directories by fill."),
        "heal": (f"{_CLI}.heal.command:heal_command", "Keep directories within limits."),
        "history": (f"{_CLI}.command_groups:history", "Record sizes, and forecast full disks."),
    },
    "Administer a cluster (-b HOST:PORT, or SPINDLE_BOOTSTRAP)": {
        "configs": (f"{_ADMIN}.configs:configs", "Show and change settings of brokers and groups."),
        "acls": (f"{_ADMIN}.acls:acls", "List, add and remove ACLs."),
        "users": (f"{_ADMIN}.users:users", "List, set and delete users that log in with SCRAM."),
        "tokens": (f"{_ADMIN}.tokens:tokens", "Create, list, renew and expire delegation tokens."),
        "quotas": (f"{_ADMIN}.quotas:quotas", "List, set and remove limits of clients."),
        "brokers": (f"{_ADMIN}.brokers:brokers", "List brokers, and unregister those that left."),
        "quorum": (f"{_ADMIN}.quorum:quorum", "Show, add and remove controllers."),
        "features": (f"{_ADMIN}.features:features", "Show, raise and lower feature levels."),
    },
    "Work with Spark (the extra spindle-log[spark])": {
        "export": (
            f"{_CLI}.command_groups:export",
            "Write topics into Delta, Iceberg or Parquet tables.",
        ),
    },
    "Look into files": {
        "audit": (
            f"{_CLI}.audit.command:audit",
            "Look for damage in log directories, and plan repairs.",
        ),
    },
    "Coming from Apache Kafka": {
        "kafka": (
            f"{_CLI}.command_groups:kafka",
            "Run a command with the options of Kafka's script.",
        ),
        "home": (f"{_CLI}.kafka_home.command:home", "Write a folder with Kafka's scripts."),
    },
}
"""The titles of the help, and under each the commands: name, import path and one sentence."""

_BY_NAME: Final = {tool.name: tool for tool in KAFKA_TOOLS}
FORMER: Final = {
    former: (f"spindle kafka {name}", _BY_NAME[name].path) for former, name in FORMER_NAMES.items()
}
"""The former names of the commands that are now below `spindle kafka`."""
