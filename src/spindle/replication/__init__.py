"""Pure state of a partition's replication: leader state, high watermark, fetch sessions."""
