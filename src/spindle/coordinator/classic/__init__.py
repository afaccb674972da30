"""Groups of the classic protocol: one member, the leader, assigns the partitions (KIP-62).

A rebalance changes the group in memory, ahead of the log. Requests that wait for it are parked in
the group.
"""
