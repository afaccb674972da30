"""Compaction of one log: plan, copy, replacement of the segments."""
