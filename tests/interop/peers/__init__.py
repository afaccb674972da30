"""Nodes and tools to compare: Apache Kafka 4.3.1 and Spindle behind one interface."""
