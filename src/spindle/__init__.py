"""Spindle: a Kafka-compatible KRaft cluster whose brokers own several log directories."""

__version__ = "0.1.0"
