"""Metrics in Prometheus' text format, from counters of the parts of a node."""
