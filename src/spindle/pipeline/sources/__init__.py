"""Spark data sources in Python: `spindle` (brokers) and `spindle-segments` (directories)."""
