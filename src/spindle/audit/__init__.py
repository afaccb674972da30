"""Audit of log directories: find damage, its cause, and its repair. Nothing is written.

Directories of Apache Kafka and of Spindle are read, also while their broker runs. The checks are
pure functions over NumPy columns of batch headers; `replica` and `log_directory` read the files.
The audit needs the extra `spindle-log[audit]`, which is NumPy. Only its jobs on Spark (`spark_job`,
`spark_fetch`, `fleet`) need the extra `spark`.
"""

from spindle.common.optional_dependencies import NUMPY, require

require(NUMPY, "audit")
