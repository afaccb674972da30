"""`spindle disks`: the log directories of a running cluster, one module for each command."""
