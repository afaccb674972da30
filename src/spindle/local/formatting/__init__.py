"""Formatting the log directories of a node, for `spindle storage` and `spindle.local`."""
