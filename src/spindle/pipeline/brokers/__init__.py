"""Reads through the brokers, without Spark: options, planning, offset ranges and tasks."""
