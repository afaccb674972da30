"""Recorded behaviour of Apache Kafka: scenarios that are played against any of the programs."""
