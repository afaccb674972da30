"""The property files in `config`, of a node and its clients."""

from typing import Final

_SERVER: Final = """\
# A node that is both broker and controller. Every key of Kafka's documentation may stand here.

# The roles of the node, and its number, which no other node of the cluster may have.
process.roles=broker,controller
node.id=1

# The addresses of the controllers.
controller.quorum.bootstrap.servers=localhost:9093

# The addresses on which the node listens, and those that it advertises to clients and other nodes.
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT

# The log directories: one for each disk, separated by commas.
log.dirs=/tmp/kraft-combined-logs

# Partitions of topics that are created without a number.
num.partitions=1

# The topics that the node keeps for itself, for a cluster of one node.
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1

# Time to keep records, size of a segment, and time between searches for old segments.
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""

_CLIENT: Final = """\
# The addresses of brokers.
bootstrap.servers=localhost:9092
"""

_CONSUMER: Final = (
    _CLIENT
    + """
# The group that shares the partitions, and its first position.
group.id=test-consumer-group
auto.offset.reset=latest
"""
)

CONFIG_FILES: Final = {
    "server.properties": _SERVER,
    "producer.properties": _CLIENT,
    "consumer.properties": _CONSUMER,
}
