"""The replicas that a broker hosts: partitions, their leaders and followers, reads, ISR changes."""
