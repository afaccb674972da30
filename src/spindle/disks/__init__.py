"""Log directories: identity, the logs of one directory, choice for new replicas, cordons."""
