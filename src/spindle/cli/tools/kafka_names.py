"""The tools by Kafka's names: scripts in `bin` and main classes, and the words of `spindle`."""

from typing import Final, NamedTuple


class KafkaTool(NamedTuple):
    """A tool of Kafka. `words` begin the equivalent command line of `spindle`."""

    script: str
    java_class: str
    words: tuple[str, ...]


_TOOLS: Final = "org.apache.kafka.tools"

KAFKA_TOOLS: Final = (
    KafkaTool("kafka-storage", "kafka.tools.StorageTool", ("storage",)),
    KafkaTool("kafka-topics", f"{_TOOLS}.TopicCommand", ("topics",)),
    KafkaTool("kafka-configs", "kafka.admin.ConfigCommand", ("configs",)),
    KafkaTool(
        "kafka-consumer-groups", f"{_TOOLS}.consumer.group.ConsumerGroupCommand", ("groups",)
    ),
    KafkaTool("kafka-groups", f"{_TOOLS}.GroupsCommand", ("all-groups",)),
    KafkaTool("kafka-acls", f"{_TOOLS}.AclCommand", ("acls",)),
    KafkaTool("kafka-transactions", f"{_TOOLS}.TransactionsCommand", ("transactions",)),
    KafkaTool(
        "kafka-delegation-tokens", f"{_TOOLS}.DelegationTokenCommand", ("delegation-tokens",)
    ),
    KafkaTool("kafka-get-offsets", f"{_TOOLS}.GetOffsetShell", ("get-offsets",)),
    KafkaTool("kafka-delete-records", f"{_TOOLS}.DeleteRecordsCommand", ("delete-records",)),
    KafkaTool("kafka-log-dirs", f"{_TOOLS}.LogDirsCommand", ("log-dirs",)),
    KafkaTool("kafka-metadata-quorum", f"{_TOOLS}.MetadataQuorumCommand", ("quorum",)),
    KafkaTool("kafka-cluster", f"{_TOOLS}.ClusterTool", ("cluster",)),
    KafkaTool("kafka-features", f"{_TOOLS}.FeatureCommand", ("features",)),
    KafkaTool("kafka-broker-api-versions", f"{_TOOLS}.BrokerApiVersionsCommand", ("api-versions",)),
    KafkaTool("kafka-console-producer", f"{_TOOLS}.ConsoleProducer", ("produce",)),
    KafkaTool("kafka-console-consumer", f"{_TOOLS}.consumer.ConsoleConsumer", ("consume",)),
    KafkaTool("kafka-producer-perf-test", f"{_TOOLS}.ProducerPerformance", ("produce-perf",)),
    KafkaTool("kafka-consumer-perf-test", f"{_TOOLS}.ConsumerPerformance", ("consume-perf",)),
    KafkaTool("kafka-leader-election", f"{_TOOLS}.LeaderElectionCommand", ("leader-election",)),
    KafkaTool(
        "kafka-reassign-partitions",
        f"{_TOOLS}.reassign.ReassignPartitionsCommand",
        ("reassign",),
    ),
    KafkaTool("kafka-metadata-shell", "org.apache.kafka.shell.MetadataShell", ("metadata-shell",)),
    KafkaTool("kafka-dump-log", f"{_TOOLS}.DumpLogSegments", ("dump-log",)),
)
