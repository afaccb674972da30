"""The parts of a Fetch: its states, its memory, its reads and its response."""
