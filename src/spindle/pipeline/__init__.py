"""The data pipeline on PySpark: sources over brokers and log directories, export, checks.

It is a client that uses Kafka's file formats and protocol, so it works on Apache Kafka clusters and
their directories, too. It needs the extra `spindle-log[spark]`.
"""

from spindle.pipeline.counting import count_records
from spindle.pipeline.spark.session import get_spark, register_sources

__all__ = ["count_records", "get_spark", "register_sources"]
