"""Where replicas should be: plans over brokers and log directories, computed without any I/O."""
