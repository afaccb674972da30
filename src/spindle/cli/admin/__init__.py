"""Commands that show and change the objects of a cluster (topics, groups, users, ...), one module
each."""
