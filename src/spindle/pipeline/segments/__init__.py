"""Log directories of Apache Kafka or Spindle, read without a broker and without changing them.

Replicas are found by `partition.metadata`; what to read is planned from checkpoints and indexes;
tasks read byte ranges with pread. Live directories change under a reader: segments roll, are
deleted or compacted, replicas move. So nothing is mapped into memory, index entries are checked
against the batch they point to, and every batch is checked by its CRC.
"""
