"""Share partitions of the partitions that this broker leads, and the fetches of their members."""
