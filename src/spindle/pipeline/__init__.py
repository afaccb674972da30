"""The data pipeline on PySpark: sources over brokers and log directories, export, checks.

It is a client: it knows Kafka's formats and the wire, and works on an Apache Kafka cluster and its
directories just as well. Needs the extra `spindle-log[spark]`.
"""

from spindle.pipeline.session import get_spark

__all__ = ["get_spark"]
