"""Record batches (format version 2): what producers send, logs keep and consumers read."""
