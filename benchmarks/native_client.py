"""Build and run the load client (client.c) on the librdkafka that confluent-kafka brings."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from functools import cache
from pathlib import Path

import confluent_kafka
from peers.paths import BUILD, PeerUnavailable

SOURCE = Path(__file__).resolve().parent / "client.c"


@cache
def executable() -> Path:
    """Return the compiled client. Raise PeerUnavailable without a C compiler."""
    digest = hashlib.sha256(SOURCE.read_bytes() + str(_librdkafka()).encode()).hexdigest()[:16]
    target = BUILD / "benchmarks" / f"client-{digest}"
    if target.is_file():
        return target
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise PeerUnavailable("the benchmarks need a C compiler (Debian: apt-get install gcc)")
    target.parent.mkdir(parents=True, exist_ok=True)
    library = _librdkafka()
    subprocess.run(
        [
            compiler, "-O2", "-Wall", "-Wextra", "-pthread", "-o", str(target), str(SOURCE),
            str(library), f"-Wl,-rpath,{library.parent}",
        ],
        check=True,
    )  # fmt: skip
    return target


def run(
    mode: str, bootstrap: str, topic: str, count: int, size: int, **config: str | int
) -> dict[str, float]:
    """Run the client once. Keys of `config` are librdkafka's, with `_` for `.`."""
    words = [f"{key.replace('_', '.')}={value}" for key, value in config.items()]
    done = subprocess.run(
        [str(executable()), mode, bootstrap, topic, str(count), str(size), *words],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{mode} on {topic}: {done.stderr.strip()[-500:]}")
    result: dict[str, float] = json.loads(done.stdout)
    return result


def _librdkafka() -> Path:
    package = Path(confluent_kafka.__file__).resolve().parent
    found = sorted((package.parent / "confluent_kafka.libs").glob("librdkafka*.so*"))
    if not found:
        raise PeerUnavailable("the wheel of confluent-kafka for Linux (with librdkafka) is missing")
    return found[0]
