"""A small blocking client for Spark's driver and tasks: sockets under `spindle.client`."""
