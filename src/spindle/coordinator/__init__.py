"""Consumer groups and their committed offsets: pure decisions of a group coordinator.

One `GroupShard` holds what one partition of `__consumer_offsets` says, plus the soft state of live
rebalances. Operations take the time as an argument and return an `Outcome`: records to append,
answers to send, timers to set. What is durable changes only when its records are committed.
"""
