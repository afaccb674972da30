"""`get_spark`: a Spark session that works on a machine with nothing but Python.

It picks a Java, points Spark at this interpreter, keeps everything on the loopback interface,
turns on what makes Python sources fast (Unix domain sockets), sets the time zone
to UTC as Kafka timestamps want it, and registers the sources `spindle` and `spindle-segments`.
"""

import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from spindle.pipeline.extra import SPARK, require
from spindle.pipeline.java import Java, choose_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CONF: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # On, it gives wrong results in Spark 4.1 to 4.3 (see `sources.segments`).
    "spark.sql.python.filterPushdown.enabled": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.shuffle.partitions": "8",
}
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_LOG_OPTION: Final = (
    f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"
)
_LOG_LEVELS: Final = ("OFF", "FATAL", "ERROR", "WARN", "INFO", "DEBUG", "TRACE", "ALL")


def get_spark(
    app_name: str = "spindle",
    master: str = "local[*]",
    conf: Mapping[str, str] | None = None,
    *,
    log_level: str = "ERROR",
    warm_up: bool = True,
) -> "SparkSession":
    """The running session with our sources registered, or a new local one.

    Args:
        app_name: Name of a new session.
        master: Spark master of a new session.
        conf: Spark configuration; wins over the defaults of this module.
        log_level: Spark's log level.
        warm_up: Compile the record kernel in this process, so that tasks find it in the cache.

    Raises:
        ImportError: PySpark or what the record kernel needs is not installed.
        NoJava: there is no Java 17 or newer.
        ValueError: an unknown log level.
    """
    if log_level not in _LOG_LEVELS:
        raise ValueError(f"log level {log_level!r} is none of {', '.join(_LOG_LEVELS)}")
    require(SPARK)
    from pyspark.sql import SparkSession

    settings = {**_CONF, **(conf or {})}
    if SparkSession.getActiveSession() is None:
        java = _prepare_environment()
        settings[_JAVA_OPTIONS] = " ".join(
            (*java.options, _LOG_OPTION, settings.get(_JAVA_OPTIONS, ""))
        ).strip()
    builder = SparkSession.Builder().appName(app_name).master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel(log_level)
    register_sources(spark)
    if warm_up:
        from spindle.pipeline.records.decoder import compile_kernel

        compile_kernel()
    return spark


def register_sources(spark: "SparkSession") -> None:
    """Make `format("spindle")` and `format("spindle-segments")` known to any session."""
    from spindle.pipeline.sources import broker, segments

    broker.register(spark)
    segments.register(spark)


def _prepare_environment() -> Java:
    """What Spark's launcher reads from the environment before any configuration."""
    java = choose_java(os.environ)
    os.environ["JAVA_HOME"] = str(java.home)
    # Spark's default is `python3`, which may be another interpreter without our packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # The launcher's own notes would otherwise stand between the lines of a program.
    logging.getLogger("py4j").setLevel(logging.ERROR)
    return java
