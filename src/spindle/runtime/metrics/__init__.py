"""Metrics for operators: counted by the parts of a node, in Prometheus' text at a scrape."""
