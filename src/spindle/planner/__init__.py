"""Placement plans for replicas over brokers and log directories, computed without I/O."""
