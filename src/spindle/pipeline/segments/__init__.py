"""Log directories of Apache Kafka or Spindle, read without a broker and without changing them.

Replicas are found by `partition.metadata`. The driver plans a read from checkpoints and indexes;
tasks read byte ranges with pread. The directories of a running node change meanwhile: segments
roll, are deleted or compacted, and replicas move. So nothing is mapped into memory, every index
entry is checked against the batch it points to, and every batch is checked by its CRC.
"""

from spindle.common.optional_dependencies import ARROW, require

require(ARROW)
