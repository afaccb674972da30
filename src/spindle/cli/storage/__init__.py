"""`spindle storage`: formatting and inspecting log directories, as Kafka's storage tool does."""
