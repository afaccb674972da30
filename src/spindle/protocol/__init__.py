"""Kafka's wire and record formats: messages, framing, batches. Knows no sockets, no files."""
