"""Drives `spindle.raft`: the node's part in the metadata quorum, over its disk and its peers."""
