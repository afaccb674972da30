"""Audit of log directories: what is damaged, why, and how it is repaired. Nothing is written.

Directories of Apache Kafka and of Spindle are read, also while their broker runs. The checks are
pure functions over NumPy columns of batch headers; `replica` and `log_directory` read the files.
"""

from spindle.pipeline.optional_dependencies import ARROW, require

require(ARROW)
