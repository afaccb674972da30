"""Streams groups (KIP-1071): members, topologies, tasks and their assignment.

`heartbeat` decides on StreamsGroupHeartbeat, `streams_group` holds the durable state of a group,
`topology` computes tasks and missing internal topics, `assignor` the target assignment, and
`reconciliation` the next step of a member to it.
"""
