"""The Spark configuration of `get_spark`, by master.

A local session uses the loopback interface only. Executors of a cluster must reach the driver, so
there Spark chooses the address, or `spark.driver.host` in the configuration names it.
"""

import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from spindle.common.text import error_text

JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_LOG_OPTION: Final = (
    f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"
)
_EVERYWHERE: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # Spark 4.1 to 4.3 gives wrong results with it (see `sources.segments`).
    "spark.sql.python.filterPushdown.enabled": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.daemon.module": "spindle.pipeline.spark.python_daemon",
    "spark.sql.shuffle.partitions": "8",
    # Options of sources are in plans, which are in the UI and in event logs. Spark hides those that
    # look like secrets, and these should not depend on their looks.
    "spark.sql.redaction.options.regex": r"(?i)url|ssl\.keystore\.key|sasl\.jaas\.config",
}
_LOCAL: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
_CLUSTER: Final = {
    # A socket's path has at most 107 bytes. Spark's default is the temporary directory of the JVM,
    # and the one of a YARN container is longer than that: every Python task would fail.
    "spark.python.unix.domain.socket.dir": "/tmp",
}
_CONNECT_SECONDS: Final = 10.0
_STANDALONE: Final = "spark://"


def is_local(master: str) -> bool:
    """Return True if all processes of a session run on this machine (`local-cluster` included)."""
    return master.startswith("local")


def spark_settings(
    master: str, given: Mapping[str, str], java_options: tuple[str, ...]
) -> dict[str, str]:
    """Return the configuration of a new session: the defaults, overridden by `given`.

    Args:
        java_options: Options of the driver's JVM; they are put before those of `given`.
    """
    settings = {**_EVERYWHERE, **(_LOCAL if is_local(master) else _CLUSTER), **given}
    options = (*java_options, _LOG_OPTION, settings.get(JAVA_OPTIONS, ""))
    settings[JAVA_OPTIONS] = " ".join(options).strip()
    return settings


def submitted_settings(given: Mapping[str, str], submitted: Mapping[str, str]) -> dict[str, str]:
    """Return what to add to the configuration of `spark-submit`, which started the JVM already."""
    defaults = {**_EVERYWHERE, **_CLUSTER}
    return {name: value for name, value in defaults.items() if name not in submitted} | dict(given)


def check_standalone_master(master: str) -> None:
    """Check that a master of the form `spark://host:port,host:port` accepts connections.

    Spark itself tries for a minute and then reports that its context was stopped.

    Raises:
        ValueError: an address without a port.
        ConnectionError: none of the addresses can be reached.
    """
    if not master.startswith(_STANDALONE):
        return
    failures = []
    for address in master.removeprefix(_STANDALONE).split(","):
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal():
            raise ValueError(f"master {master!r}: want spark://host:port, found {address!r}")
        try:
            socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
        except OSError as error:
            failures.append(f"{address}: {error_text(error)}")
        else:
            return
    raise ConnectionError(f"no Spark master at {master} ({'; '.join(failures)})")
