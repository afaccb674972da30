"""Moves of replicas between the log directories of one broker (KIP-113, KIP-858)."""
