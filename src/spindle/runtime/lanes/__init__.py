"""Native lanes: threads that serve Produce and Fetch without the interpreter (see `native/`)."""
