"""Nodes and tools to compare: Apache Kafka and Spindle behind one interface."""
