"""Drives `spindle.coordinator`: one shard for each led partition of the two internal topics."""
