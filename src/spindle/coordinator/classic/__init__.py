"""Groups of the classic protocol: the members' leader assigns (KIP-62).

A rebalance is soft state that is ahead of the log. Requests that wait for it are parked in the
group.
"""
