"""The metadata log on the disk: records, snapshots and `quorum-state` (KIP-595, KIP-630)."""
