"""Consumer groups and their committed offsets: pure decisions of a group coordinator.

A `GroupShard` holds the state of one partition of `__consumer_offsets`, and the soft state of
rebalances that are running. An operation adds to a `GroupResult`: records to append, answers to
send, timers to set. Durable state changes only when its records are committed.
"""
