"""Bring Apache Kafka, its shell and tests, and Spark's Kafka connector into build/, with Maven.

They are peers for tests and measurements; Spindle itself needs none of them. A second run does
nothing: a folder whose stamp equals its pom is complete. Exit code 3 means that Maven is not
installed.

    python tools/kafka/fetch.py [kafka-4.4.0] [kafka-4.3.1] [streams] [kafka-shell] [kafka-suite]
        [clients-2.1] [clients-3.9] [spark-connector]
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
HERE: Final = Path(__file__).resolve().parent

RELEASE: Final = "4.4.0"
"""The release of Apache Kafka that Spindle is compared and mixed with."""
OLDER_RELEASE: Final = "4.3.1"
"""The older neighbour of mixed clusters."""


@dataclass(frozen=True, slots=True)
class Target:
    """Jars to fetch.

    Attributes:
        pom: names the jars; the word RELEASE in it stands for `release`.
        folder: has the jars.
    """

    pom: Path
    folder: Path
    release: str = RELEASE

    def pom_text(self) -> str:
        """Return the pom with the release filled in."""
        return self.pom.read_text().replace("RELEASE", self.release)


def _of_release(pom: str, part: str, release: str = RELEASE) -> Target:
    return Target(HERE / pom, ROOT / "build" / "kafka" / release / part, release)


# Maven Central has neither the metadata shell nor the test jars of 4.4.0.
TARGETS: Final = {
    f"kafka-{RELEASE}": _of_release("pom.xml", "libs"),
    f"kafka-{OLDER_RELEASE}": _of_release("pom.xml", "libs", OLDER_RELEASE),
    "streams": _of_release("streams-pom.xml", "streams"),
    "kafka-shell": _of_release("shell-pom.xml", "shell", OLDER_RELEASE),
    "kafka-suite": _of_release("suite-pom.xml", "suite", OLDER_RELEASE),
    "clients-2.1": Target(HERE / "clients-2.1-pom.xml", ROOT / "build" / "kafka-clients" / "2.1"),
    "clients-3.9": Target(HERE / "clients-3.9-pom.xml", ROOT / "build" / "kafka-clients" / "3.9"),
    "spark-connector": Target(HERE / "spark-pom.xml", ROOT / "build" / "spark-kafka"),
}

MAVEN_MISSING = 3


class MavenMissing(RuntimeError):
    """Maven is not on the PATH, and the jars are not in build/ yet."""


def is_complete(target: Target) -> bool:
    """Return True if the folder of the target has the jars of exactly its pom."""
    stamp = target.folder / ".pom.sha256"
    return stamp.is_file() and stamp.read_text() == _digest(target)


def fetch(name: str) -> Path:
    """Make sure that the jars of target `name` are in place, and return their folder.

    Raises:
        MavenMissing: there are no jars and Maven is not installed.
        CalledProcessError: Maven failed.
    """
    target = TARGETS[name]
    folder = target.folder
    if is_complete(target):
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
    pom = folder / "pom.xml"
    pom.write_text(target.pom_text())
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
    (folder / ".pom.sha256").write_text(_digest(target))
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


def _digest(target: Target) -> str:
    return hashlib.sha256(target.pom_text().encode()).hexdigest()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
