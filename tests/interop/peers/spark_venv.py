"""A virtual environment with PySpark 4.2, the version of Spark's Kafka connector in these tests.

The project's own environment has the newest PySpark; this one lives in build/ and is made once.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from peers.paths import BUILD, ROOT, PeerUnavailable, java, made_by_one, spark_connector_jars

PYSPARK = "pyspark==4.2.0"
FOLDER = BUILD / "spark42-venv"


def python() -> Path:
    """Return the interpreter with PySpark 4.2 and Spindle's pipeline; install it on first use.

    Raises:
        PeerUnavailable: it cannot be installed.
    """
    with made_by_one("spark42-venv"):
        return _installed()


def _installed() -> Path:
    interpreter = FOLDER / "bin" / "python"
    stamp = FOLDER / ".complete"
    # The project is installed by its path: a folder that was copied with its tree is made again.
    made_of = f"{PYSPARK} {ROOT}"
    if stamp.is_file() and stamp.read_text() == made_of:
        return interpreter
    uv = shutil.which("uv") or str(Path(sys.executable).parent / "uv")
    commands = [
        [uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(FOLDER)],
        [
            uv, "pip", "install", "--quiet", "--python", str(interpreter), PYSPARK,
            "--editable", f"{ROOT}[spark]",
        ],
    ]  # fmt: skip
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise PeerUnavailable(f"no environment with {PYSPARK}: {done.stderr.strip()}")
    stamp.write_text(made_of)
    return interpreter


def environment() -> dict[str, str]:
    """Return the environment variables for a process that uses `python()`."""
    jars = ",".join(str(jar) for jar in spark_connector_jars())
    return {
        **os.environ,
        "SPARK_JARS": jars,
        "JAVA_HOME": str(Path(java()).resolve().parents[1]),
        "PYSPARK_PYTHON": str(python()),
    }
