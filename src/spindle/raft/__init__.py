"""The KRaft quorum: a pure state machine and its file formats (KIP-595, 630, 853, 996)."""
