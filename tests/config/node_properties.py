"""The keys that a property file needs."""

COMBINED = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://h1:9092,CONTROLLER://h1:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@h1:9093",
    "log.dirs": "/a,/b",
}
"""Of a broker and controller in one process."""
