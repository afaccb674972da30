"""Kafka's wire and record formats: messages, framing, batches. No I/O happens here."""
