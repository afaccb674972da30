"""`spindle history`: record sizes and offsets of a cluster, and forecast full disks."""
