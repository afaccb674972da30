"""The segments of a log: records, offset, time and transaction indexes, look-up, retention."""
