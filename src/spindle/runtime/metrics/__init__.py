"""Metrics for operators: the parts of a node count, and a scrape gets Prometheus' text."""
