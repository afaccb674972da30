"""Stand-ins for the world: file system, clock and network that tests can break."""
