"""Client and replication quotas: limits from the metadata, measured rates, throttle times."""
