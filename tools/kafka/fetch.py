"""Bring Apache Kafka, its shell and tests, and Spark's Kafka connector into build/, with Maven.

They are peers for tests and measurements; Spindle itself needs none of them. A second run does
nothing: a folder whose stamp equals its pom is complete. Exit code 3 means that Maven is not
installed.

    python tools/kafka/fetch.py [kafka] [kafka-shell] [kafka-suite] [streams] [clients-2.1]
        [clients-3.9] [spark-connector]
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent

KAFKA_LIBS = ROOT / "build" / "kafka" / "4.3.1" / "libs"
KAFKA_SHELL_JARS = ROOT / "build" / "kafka-shell"
KAFKA_SUITE_JARS = ROOT / "build" / "kafka-suite"
STREAMS_JARS = ROOT / "build" / "kafka-streams"
OLD_CLIENT_JARS = ROOT / "build" / "kafka-clients"
SPARK_CONNECTOR_JARS = ROOT / "build" / "spark-kafka"

TARGETS: dict[str, tuple[Path, Path]] = {
    "kafka": (HERE / "pom.xml", KAFKA_LIBS),
    "kafka-shell": (HERE / "shell-pom.xml", KAFKA_SHELL_JARS),
    "kafka-suite": (HERE / "suite-pom.xml", KAFKA_SUITE_JARS),
    "streams": (HERE / "streams-pom.xml", STREAMS_JARS),
    "clients-2.1": (HERE / "clients-2.1-pom.xml", OLD_CLIENT_JARS / "2.1"),
    "clients-3.9": (HERE / "clients-3.9-pom.xml", OLD_CLIENT_JARS / "3.9"),
    "spark-connector": (HERE / "spark-pom.xml", SPARK_CONNECTOR_JARS),
}

MAVEN_MISSING = 3


class MavenMissing(RuntimeError):
    """Maven is not on the PATH, and the jars are not in build/ yet."""


def is_complete(pom: Path, folder: Path) -> bool:
    """Return True if `folder` holds the jars of exactly this `pom`."""
    stamp = folder / ".pom.sha256"
    return stamp.is_file() and stamp.read_text() == _digest(pom)


def fetch(name: str) -> Path:
    """Make sure that the jars of target `name` are in place, and return their folder.

    Raises:
        MavenMissing: there are no jars and Maven is not installed.
        CalledProcessError: Maven failed.
    """
    pom, folder = TARGETS[name]
    if is_complete(pom, folder):
        return folder
    maven = shutil.which("mvn")
    if maven is None:
        raise MavenMissing(
            f"{name}: no jars in {folder} and no `mvn` on the PATH. "
            "Install Maven 3.6 or newer (Debian: apt-get install maven) and run this again."
        )
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    subprocess.run(
        [
            maven,
            "--batch-mode",
            "--quiet",
            "--file",
            str(pom),
            "dependency:copy-dependencies",
            f"-DoutputDirectory={folder}",
            "-DincludeScope=runtime",
        ],
        check=True,
    )
    (folder / ".pom.sha256").write_text(_digest(pom))
    return folder


def main(arguments: list[str]) -> int:
    """Fetch the named targets, or all; return the exit code."""
    for name in arguments or list(TARGETS):
        if name not in TARGETS:
            print(f"unknown target {name!r}: known are {', '.join(TARGETS)}", file=sys.stderr)
            return 2
        try:
            folder = fetch(name)
        except MavenMissing as missing:
            print(missing, file=sys.stderr)
            return MAVEN_MISSING
        jars = sorted(folder.glob("*.jar"))
        size_mib = sum(jar.stat().st_size for jar in jars) / 2**20
        print(f"{name}: {len(jars)} jars, {size_mib:.0f} MiB in {folder}")
    return 0


def _digest(pom: Path) -> str:
    return hashlib.sha256(pom.read_bytes()).hexdigest()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
