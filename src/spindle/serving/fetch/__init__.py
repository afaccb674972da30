"""The parts of a Fetch: sessions wait, partitions are read, responses are sent."""
