"""How costs grow with the cluster: metadata of up to 2,000,000 partitions, brokers, plans.

The metadata is made from a seed and written as a snapshot, so that no partition has to be created.
"""
