"""Build and run the load client (client.c) on the librdkafka that confluent-kafka brings."""

from __future__ import annotations

import json
import subprocess
from functools import cache
from pathlib import Path

import confluent_kafka
from peers.paths import PeerUnavailable

from benchmarks.compiled import compiled

CLIENT_KEYS = {"warm_up"}
"""Keys of client.c that have an underscore."""


@cache
def executable() -> Path:
    """Return the compiled client. Raise PeerUnavailable without a C compiler."""
    library = _librdkafka()
    return compiled("client", str(library), f"-Wl,-rpath,{library.parent}")


def run(
    mode: str, bootstrap: str, topic: str, count: int, size: int, **config: str | int
) -> dict[str, float]:
    """Run the client once. Keys of `config` are librdkafka's, with `_` for `.`, or the client's."""
    names = {key: key if key in CLIENT_KEYS else key.replace("_", ".") for key in config}
    words = [f"{names[key]}={value}" for key, value in config.items()]
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
    paths = sorted((package.parent / "confluent_kafka.libs").glob("librdkafka*.so*"))
    if not paths:
        raise PeerUnavailable("the wheel of confluent-kafka for Linux (with librdkafka) is missing")
    return paths[0]
