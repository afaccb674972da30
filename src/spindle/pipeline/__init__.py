"""The data pipeline on PySpark: sources over brokers and log directories, export, checks.

It is a client that uses Kafka's file formats and protocol, so it works on Apache Kafka clusters and
their directories, too. It needs the extra `spindle-log[spark]`.
"""

from typing import TYPE_CHECKING, Any

from spindle.pipeline.counting import count_records

if TYPE_CHECKING:
    from spindle.pipeline.spark.session import get_spark, register_sources

__all__ = ["count_records", "get_spark", "register_sources"]


def __getattr__(name: str) -> Any:
    # Loaded when it is used, so that `python -m spindle.pipeline.spark.java` is not loaded twice.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from spindle.pipeline.spark import session

    return getattr(session, name)
