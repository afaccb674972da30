"""`spindle home`: a folder shaped like a Kafka installation, for suites that spawn its scripts."""
