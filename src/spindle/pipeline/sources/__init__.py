"""Spark data sources in Python: `spindle` (brokers) and `spindle-segments` (directories)."""

from spindle.common.optional_dependencies import SPARK, require

require(SPARK)
