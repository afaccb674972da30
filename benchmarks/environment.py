"""Describe the machine, interpreters, libraries and load of a measurement."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import confluent_kafka
import psutil
from peers.paths import java, kafka_release

INTERPRETER = Path(__file__).resolve().parent / "interpreter.py"


def environment(data: Path, checkouts: dict[str, Path], with_java: bool) -> dict[str, Any]:
    """Return the description as plain data.

    Args:
        data: The folder of the logs.
        checkouts: The folder of each Spindle by the name of its column.
        with_java: Whether to name the Java that runs Kafka.
    """
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "load_average_at_start": list(os.getloadavg()),
        "kernel": f"{platform.system()} {platform.release()}",
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": psutil.virtual_memory().total,
        "file_system": file_system(data),
        "librdkafka": confluent_kafka.libversion()[0],
        "java": _java() if with_java else None,
        "kafka": kafka_release() if with_java else None,
        "spindle": {name: _checkout(folder) for name, folder in checkouts.items()},
    }


def summary(described: dict[str, Any]) -> str:
    """Return the description in a few lines."""
    lines = [
        f"{described['time']}, load average {described['load_average_at_start'][0]:.2f} at the "
        f"start; {described['cores']} cores ({described['processor']}), "
        f"{described['memory_bytes'] / 2**30:.1f} GiB, {described['file_system']}, "
        f"{described['kernel']}, librdkafka {described['librdkafka']}"
    ]
    if described["java"]:
        lines.append(
            f"kafka: Apache Kafka {described['kafka']}, "
            f"{' / '.join(described['java'].splitlines()[::2])}"
        )
    for name, checkout in described["spindle"].items():
        interpreter = checkout["interpreter"]
        flags = ", ".join(
            f"{'' if interpreter[flag] else 'no '}{label}"
            for flag, label in (("pgo", "PGO"), ("lto", "LTO"), ("shared", "shared library"))
        )
        lines.append(
            f"{name}: commit {checkout['commit']}, {interpreter['name']} ({flags}, by its own "
            f"account; {interpreter['compiler']}); {checkout.get('native', 'unknown')}"
        )
    return "\n".join(lines)


def file_system(folder: Path) -> str:
    """Return the type of the file system that a folder is on."""
    path = folder.resolve()
    # A later mount on the same place hides an earlier one.
    mounts = {Path(mount.mountpoint): mount.fstype for mount in psutil.disk_partitions(all=True)}
    return next((mounts[place] for place in (path, *path.parents) if place in mounts), "unknown")


def _checkout(folder: Path) -> dict[str, Any]:
    """Return commit and interpreter of a checkout of Spindle."""
    return {
        "commit": _output(["git", "-C", str(folder), "describe", "--always", "--dirty"]),
        "interpreter": json.loads(_output([str(folder / ".venv/bin/python"), str(INTERPRETER)])),
        "native": _output([str(folder / ".venv/bin/python"), "-m", "spindle.common.native"]),
    }


def _output(command: list[str]) -> str:
    """Return what a command prints; "unknown" for a folder that is no repository."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.machine()


def _java() -> str:
    done = subprocess.run([java(), "-version"], capture_output=True, text=True, check=True)
    return done.stderr.strip()
