"""Clusters of real processes for the tests of applications, with faults of every part.

`cluster` is the interface. `supervisor` runs in a process of its own that forks the nodes, so that
modules are loaded once, and the test's process, which may have threads, is never forked.
"""
