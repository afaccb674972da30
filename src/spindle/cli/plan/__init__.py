"""`spindle plan`: target directories of replicas, and rounds of moves."""
