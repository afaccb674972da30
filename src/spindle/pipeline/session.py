"""`get_spark`: a Spark session that works on a machine with nothing but Python.

It picks a Java, makes Spark use this Python interpreter and the loopback interface only, turns on
what makes Python sources fast (Unix domain sockets), sets the time zone to UTC because Kafka's
timestamps are UTC, and registers the sources `spindle` and `spindle-segments`.

Most of its time is Spark's own: the start of the Java process and of the session, about as long as
in plain PySpark. The record kernel is compiled, or loaded from its cache, on a thread meanwhile.
"""

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from spindle.pipeline.extra import SPARK, require
from spindle.pipeline.java import Java, choose_java, launcher_home
from spindle.pipeline.start_report import StartReport

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CONF: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # Spark 4.1 to 4.3 gives wrong results with it (see `sources.segments`).
    "spark.sql.python.filterPushdown.enabled": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.daemon.module": "spindle.pipeline.python_daemon",
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
    progress: bool | None = None,
) -> "SparkSession":
    """Return the active session with Spindle's sources registered, or start a local one.

    Args:
        app_name: Name of a new session.
        master: Spark master of a new session.
        conf: Spark configuration; it overrides the defaults of this module.
        log_level: Spark's log level.
        warm_up: Compile the record kernel meanwhile, so that tasks find it in the cache on disk.
        progress: Write two lines to standard error: what is being started, and how many seconds
            each part took. None writes them if standard error is a terminal.

    Raises:
        ImportError: PySpark, or a library of the record kernel, is not installed.
        NoJava: there is no Java 17 or newer.
        ValueError: an unknown log level.
    """
    if log_level not in _LOG_LEVELS:
        raise ValueError(f"log level {log_level!r} is none of {', '.join(_LOG_LEVELS)}")
    require(SPARK)
    from pyspark.sql import SparkSession

    settings = {**_CONF, **(conf or {})}
    java = choose_java(os.environ) if SparkSession.getActiveSession() is None else None
    report = StartReport(sys.stderr, progress if java else False)
    with ThreadPoolExecutor(1, "spindle-kernel") as pool:
        kernel = pool.submit(_compile_kernel) if warm_up else None
        builder = SparkSession.Builder().appName(app_name).master(master)
        if java is not None:
            report.starting(java)
            options = (*java.options, _LOG_OPTION, settings.get(_JAVA_OPTIONS, ""))
            settings[_JAVA_OPTIONS] = " ".join(options).strip()
        for name, value in settings.items():
            builder = builder.config(name, value)
        with _environment_of_launcher(java):
            spark = builder.getOrCreate()
        report.part_ends("Java and session")
        spark.sparkContext.setLogLevel(log_level)
        register_sources(spark)
        report.part_ends("registration of the sources")
        if kernel is not None:
            kernel.result()
            report.part_ends("rest of the record kernel")
    report.ready()
    return spark


def register_sources(spark: "SparkSession") -> None:
    """Register `spindle` and `spindle-segments` as formats of any session."""
    from spindle.pipeline.sources import broker, segments

    broker.register(spark)
    segments.register(spark)


def _compile_kernel() -> None:
    from spindle.pipeline.records.decoder import compile_kernel

    compile_kernel()


@contextmanager
def _environment_of_launcher(java: Java | None) -> Iterator[None]:
    """Set the environment that Spark's launcher reads before any configuration.

    JAVA_HOME is put back at the end, because other programs may need the one of the user. The
    names of the interpreter stay: Spark reads them whenever it starts a worker.
    """
    if java is None:
        yield
        return
    # Spark's default is `python3`, which may be another interpreter without our packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # Otherwise the notes of the launcher appear between the lines of a program.
    logging.getLogger("py4j").setLevel(logging.ERROR)
    before = os.environ.get("JAVA_HOME")
    os.environ["JAVA_HOME"] = str(launcher_home(java))
    try:
        yield
    finally:
        if before is None:
            del os.environ["JAVA_HOME"]
        else:
            os.environ["JAVA_HOME"] = before
