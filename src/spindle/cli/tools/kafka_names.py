"""Kafka's tools: the script in `bin`, the main class, and Spindle's command."""

from typing import Final, NamedTuple


class KafkaTool(NamedTuple):
    """A tool of Kafka.

    Attributes:
        script: the name of Kafka's script, without `.sh`.
        java_class: Kafka's main class.
        path: import path of the command, `module:attribute`.
        summary: one sentence for the list of commands.
    """

    script: str
    java_class: str
    path: str
    summary: str

    @property
    def name(self) -> str:
        """The word after `spindle kafka`."""
        return self.script.removeprefix("kafka-")


_TOOLS: Final = "org.apache.kafka.tools"
_CLI: Final = "spindle.cli"
_HERE: Final = f"{_CLI}.tools"

KAFKA_TOOLS: Final = (
    KafkaTool(
        "kafka-topics",
        f"{_TOOLS}.TopicCommand",
        f"{_HERE}.topics:topics",
        "Create, list, describe, change and delete topics.",
    ),
    KafkaTool(
        "kafka-configs",
        f"{_TOOLS}.ConfigCommand",
        f"{_HERE}.configs:configs",
        "Show and change configurations, quotas and SCRAM users.",
    ),
    KafkaTool(
        "kafka-client-metrics",
        f"{_TOOLS}.ClientMetricsCommand",
        f"{_HERE}.client_metrics:client_metrics",
        "Choose the metrics that clients push to the brokers.",
    ),
    KafkaTool(
        "kafka-console-producer",
        f"{_TOOLS}.ConsoleProducer",
        f"{_HERE}.produce:produce",
        "Send the lines of standard input.",
    ),
    KafkaTool(
        "kafka-console-consumer",
        f"{_TOOLS}.consumer.ConsoleConsumer",
        f"{_HERE}.consume:consume",
        "Print the records of topics.",
    ),
    KafkaTool(
        "kafka-get-offsets",
        f"{_TOOLS}.GetOffsetShell",
        f"{_HERE}.get_offsets:get_offsets",
        "Show offsets of partitions.",
    ),
    KafkaTool(
        "kafka-delete-records",
        f"{_TOOLS}.DeleteRecordsCommand",
        f"{_HERE}.delete_records:delete_records",
        "Delete the oldest records of partitions.",
    ),
    KafkaTool(
        "kafka-consumer-groups",
        f"{_TOOLS}.consumer.group.ConsumerGroupCommand",
        f"{_HERE}.groups:groups",
        "List, describe, reset and delete consumer groups.",
    ),
    KafkaTool(
        "kafka-groups",
        f"{_TOOLS}.GroupsCommand",
        f"{_HERE}.all_groups:all_groups",
        "List the groups of every type.",
    ),
    KafkaTool(
        "kafka-transactions",
        f"{_TOOLS}.TransactionsCommand",
        f"{_HERE}.transactions:transactions",
        "List and describe transactions; find and end those that hang.",
    ),
    KafkaTool(
        "kafka-acls",
        f"{_TOOLS}.AclCommand",
        f"{_HERE}.acls:acls",
        "List, add and remove ACLs.",
    ),
    KafkaTool(
        "kafka-delegation-tokens",
        f"{_TOOLS}.DelegationTokenCommand",
        f"{_HERE}.delegation_tokens:delegation_tokens",
        "Create, renew, expire and show delegation tokens.",
    ),
    KafkaTool(
        "kafka-log-dirs",
        f"{_TOOLS}.LogDirsCommand",
        f"{_HERE}.log_dirs:log_dirs",
        "Show log directories as JSON.",
    ),
    KafkaTool(
        "kafka-reassign-partitions",
        f"{_TOOLS}.reassign.ReassignPartitionsCommand",
        f"{_HERE}.reassign:reassign",
        "Move replicas between brokers and log directories.",
    ),
    KafkaTool(
        "kafka-leader-election",
        f"{_TOOLS}.LeaderElectionCommand",
        f"{_HERE}.leader_election:leader_election",
        "Elect leaders.",
    ),
    KafkaTool(
        "kafka-cluster",
        f"{_TOOLS}.ClusterTool",
        f"{_HERE}.cluster:cluster",
        "Show the id and the nodes; unregister a broker.",
    ),
    KafkaTool(
        "kafka-metadata-quorum",
        f"{_TOOLS}.MetadataQuorumCommand",
        f"{_HERE}.quorum:quorum",
        "Show and change the metadata quorum.",
    ),
    KafkaTool(
        "kafka-features",
        f"{_TOOLS}.FeatureCommand",
        f"{_HERE}.features:features",
        "Show and change feature levels.",
    ),
    KafkaTool(
        "kafka-broker-api-versions",
        f"{_TOOLS}.BrokerApiVersionsCommand",
        f"{_HERE}.api_versions:api_versions",
        "Show the APIs of brokers.",
    ),
    KafkaTool(
        "kafka-producer-perf-test",
        f"{_TOOLS}.ProducerPerformance",
        f"{_HERE}.produce_perf:produce_perf",
        "Measure the throughput of a producer.",
    ),
    KafkaTool(
        "kafka-consumer-perf-test",
        f"{_TOOLS}.ConsumerPerformance",
        f"{_HERE}.consume_perf:consume_perf",
        "Measure the throughput of a consumer.",
    ),
    KafkaTool(
        "kafka-storage",
        "kafka.tools.StorageTool",
        f"{_CLI}.storage.commands:storage",
        "Format and inspect log directories.",
    ),
    KafkaTool(
        "kafka-dump-log",
        f"{_TOOLS}.DumpLogSegments",
        f"{_HERE}.dump_log:dump_log",
        "Show the content of segments and indexes.",
    ),
    KafkaTool(
        "kafka-metadata-shell",
        "org.apache.kafka.shell.MetadataShell",
        f"{_CLI}.shell.command:metadata_shell",
        "Browse the metadata in a snapshot or log.",
    ),
)

FORMER_NAMES: Final = {
    "topics": "topics",
    "configs": "configs",
    "produce": "console-producer",
    "consume": "console-consumer",
    "get-offsets": "get-offsets",
    "delete-records": "delete-records",
    "groups": "consumer-groups",
    "all-groups": "groups",
    "transactions": "transactions",
    "acls": "acls",
    "delegation-tokens": "delegation-tokens",
    "log-dirs": "log-dirs",
    "reassign": "reassign-partitions",
    "leader-election": "leader-election",
    "cluster": "cluster",
    "quorum": "metadata-quorum",
    "features": "features",
    "api-versions": "broker-api-versions",
    "produce-perf": "producer-perf-test",
    "consume-perf": "consumer-perf-test",
    "dump-log": "dump-log",
    "metadata-shell": "metadata-shell",
}
"""The words that began a tool's command line before `spindle kafka`, and its name there."""

FORMER_CLASSES: Final = {"kafka.admin.ConfigCommand": f"{_TOOLS}.ConfigCommand"}
"""Main classes that had another name before Kafka 4.4, which scripts may still use."""
