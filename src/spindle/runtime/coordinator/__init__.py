"""Drives `spindle.coordinator`: one shard for each led partition of `__consumer_offsets`."""
