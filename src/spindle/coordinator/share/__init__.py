"""Share groups (KIP-932): members and assignments, records in flight, and their stored state.

`heartbeat`, `share_group` and `group_records` belong to the group coordinator; `share_partition`
and `share_sessions` to the leader of a partition; `state_shard` and `state_records` to the share
coordinator, which stores what the leaders write.
"""
