"""`kafka-metadata-shell`: the metadata of a cluster as a tree of files, read from a node's disk."""
