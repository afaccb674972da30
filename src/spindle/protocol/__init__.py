"""Kafka's wire and record formats: messages, framing, record batches. Knows no sockets and no files."""
