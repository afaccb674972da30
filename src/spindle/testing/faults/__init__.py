"""Faults of disks and connections inside the process of a real node, for tests of applications.

A production node never imports this package: `spindle.testing.cluster` starts its nodes on a
machine of this package instead.
"""
