"""Clusters of `spindle.local` for the tests of applications, with faults of every part."""
