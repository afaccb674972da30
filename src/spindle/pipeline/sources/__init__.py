"""Spark data sources in Python: `spindle` (brokers) and `spindle-segments` (directories)."""

from spindle.pipeline.extra import SPARK, require

require(SPARK)
