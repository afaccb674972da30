"""`get_spark`: a Spark session that works on a machine with nothing but Python.

It picks a Java, makes Spark use this Python interpreter, turns on what makes Python sources fast
(Unix domain sockets), sets the time zone to UTC because Kafka's timestamps are UTC, and registers
the sources `spindle`, `spindle-segments` and `spindle-batches`. The configuration is in
`spark_settings`: a local session uses the loopback interface only, a session on a cluster does not.

Most of its time is Spark's own: the start of the Java process and of the session, about as long as
in plain PySpark. The record kernel is compiled, or loaded from its cache, on a thread meanwhile.
"""

import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TextIO

from spindle.common.optional_dependencies import SPARK, require
from spindle.pipeline.spark.java import Java, choose_java, launcher_home
from spindle.pipeline.spark.settings import (
    check_standalone_master,
    is_local,
    spark_settings,
    submitted_settings,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_GATEWAY: Final = "PYSPARK_GATEWAY_PORT"
"""The variable with the address of the JVM of a program under `spark-submit`."""
_LOG_LEVELS: Final = ("OFF", "FATAL", "ERROR", "WARN", "INFO", "DEBUG", "TRACE", "ALL")


def get_spark(
    app_name: str = "spindle",
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    *,
    log_level: str = "ERROR",
    warm_up: bool = True,
    progress: bool | None = None,
) -> "SparkSession":
    """Return the active session with Spindle's sources registered, or start one.

    Args:
        app_name: Name of a new session.
        master: Spark master of a new session. None means the one of `spark-submit`, or `local[*]`
            in a program that `spark-submit` has not started.
        conf: Spark configuration; it overrides the defaults of `spark_settings`.
        log_level: Spark's log level.
        warm_up: Compile the record kernel meanwhile, so that tasks find it in the cache on disk.
        progress: Write two lines to standard error: what is being started, and how many seconds
            each part took. None writes them if standard error is a terminal or a notebook.

    Raises:
        ImportError: PySpark, or a library of the record kernel, is not installed.
        NoJava: there is no Java 17 or newer.
        ConnectionError: there is no standalone master at `spark://host:port`.
        ValueError: an unknown log level, or a wrong master.
    """
    if log_level not in _LOG_LEVELS:
        raise ValueError(f"log level {log_level!r} is none of {', '.join(_LOG_LEVELS)}")
    require(SPARK)
    from pyspark.sql import SparkSession

    from spindle.pipeline.spark.source_lookup import skip_lookup

    is_new = SparkSession.getActiveSession() is None
    java = choose_java(os.environ) if is_new and _GATEWAY not in os.environ else None
    report = StartReport(sys.stderr, progress if java else False)
    with ThreadPoolExecutor(1, "spindle-kernel") as pool:
        kernel = pool.submit(_compile_kernel) if warm_up else None
        if java is None:
            spark = _session(app_name, master, _added_settings(conf or {}, is_new))
        else:
            place = master or "local[*]"
            check_standalone_master(place)
            report.starting(java)
            with _environment_of_launcher(java, place), ended_with_a_failed_start():
                spark = _session(app_name, place, spark_settings(place, conf or {}, java.options))
        report.part_ends("Java and session")
        spark.sparkContext.setLogLevel(log_level)
        if java is not None:
            skip_lookup(spark)
        register_sources(spark)
        report.part_ends("registration of the sources")
        if kernel is not None:
            kernel.result()
            report.part_ends("rest of the record kernel")
    report.ready()
    return spark


def _session(app_name: str, master: str | None, settings: Mapping[str, str]) -> "SparkSession":
    from pyspark.sql import SparkSession

    builder = SparkSession.Builder().appName(app_name)
    if master is not None:
        builder = builder.master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _added_settings(given: Mapping[str, str], is_new: bool) -> Mapping[str, str]:
    """Return the settings for the JVM of `spark-submit`, or for a session that exists already."""
    if not is_new:
        return given
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()  # connects to the JVM, which knows the submitted settings
    return submitted_settings(given, dict(SparkConf().getAll()))


def register_sources(spark: "SparkSession") -> None:
    """Register `spindle`, `spindle-segments` and `spindle-batches` as formats of any session."""
    from spindle.pipeline.sources import batches, broker, segments, unsupported

    broker.register(spark)
    segments.register(spark)
    batches.register(spark)
    unsupported.explain_delta(spark)


def _compile_kernel() -> None:
    from spindle.columnar.decoder import compile_kernel

    compile_kernel()


@contextmanager
def _environment_of_launcher(java: Java, master: str) -> Iterator[None]:
    """Set the environment that Spark's launcher reads before any configuration.

    JAVA_HOME is restored at the end, because other programs may need the user's value. The names of
    the interpreter stay: Spark reads them whenever it starts a worker.
    """
    # Spark's default is `python3`, which may be another interpreter without our packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if is_local(master):
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


class StartReport:
    """Writes to `stream` if `is_wanted`; None means if a person sees the stream at once."""

    def __init__(self, stream: TextIO, is_wanted: bool | None) -> None:
        self._stream = stream
        self._is_wanted = _is_watched(stream) if is_wanted is None else is_wanted
        self._started_s = self._part_started_s = time.monotonic()
        self._parts: list[str] = []

    def starting(self, java: Java) -> None:
        """Say that Spark is being started, and with which Java."""
        version = ".".join(map(str, java.version))
        self._write(f"Starting Spark on Java {version} ({java.origin}) ...")

    def part_ends(self, name: str) -> None:
        """Note how long the part took that began when the last one ended."""
        now_s = time.monotonic()
        self._parts.append(f"{name} {now_s - self._part_started_s:.1f} s")
        self._part_started_s = now_s

    def ready(self) -> None:
        """Say that the session is there, and where the time went."""
        seconds = time.monotonic() - self._started_s
        self._write(f"Spark is ready after {seconds:.1f} s ({', '.join(self._parts)})")

    def _write(self, line: str) -> None:
        if self._is_wanted:
            self._stream.write(f"{line}\n")
            self._stream.flush()


def _is_watched(stream: TextIO) -> bool:
    """Return True for a terminal, and for a cell of a notebook, which is no terminal."""
    return stream.isatty() or type(stream).__module__ == "ipykernel.iostream"


@contextmanager
def ended_with_a_failed_start() -> Iterator[None]:
    """Kill the JVM that PySpark starts in this block if the block fails, as after Ctrl-C.

    PySpark removes the folder in which the JVM is about to write its port, so this JVM would report
    a missing file, and then run forever.
    """
    import pyspark.java_gateway
    from pyspark import SparkContext

    started: list[subprocess.Popen[bytes]] = []
    launcher: Any = pyspark.java_gateway
    popen = launcher.Popen

    def start(*arguments: Any, **named: Any) -> subprocess.Popen[bytes]:
        started.append(popen(*arguments, **named))
        return started[-1]

    launcher.Popen = start
    try:
        yield
    except BaseException:
        # With a gateway, the next session uses this JVM, which ends with the process.
        if SparkContext._gateway is None:
            for process in started:
                process.kill()
        raise
    finally:
        launcher.Popen = popen
