"""Items over TLS: produce and consume as on a listener without it, with the same certificate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from peers.node import Node

from benchmarks.items import (
    KAFKA_JVM,
    OVERRIDES,
    Item,
    Metric,
    Metrics,
    Sizes,
    Subject,
    fill,
    read,
    topic_of,
)
from spindle.local.security import new_certificates

_LISTENER = "SECURE"
_SIZE = 1024
_WARM_UP_SHARE = 4


def _login(node: Node) -> dict[str, Any]:
    """Return the arguments of `fill` and `read` for the listener with TLS."""
    return {
        "address": node.secure_bootstrap(_LISTENER),
        "security_protocol": "ssl",
        "ssl_ca_location": str(node.folder / "ca.pem"),
    }


def _produce(node: Node, sizes: Sizes) -> Metrics:
    count = sizes.of_records(_SIZE) // _SIZE
    with topic_of(node) as topic:
        # A JVM compiles the code of TLS meanwhile.
        fill(node, topic, count // _WARM_UP_SHARE, _SIZE, "1", **_login(node))
    with topic_of(node) as topic:
        return fill(node, topic, count, _SIZE, "1", **_login(node))


def _consume(node: Node, sizes: Sizes) -> Metrics:
    count = sizes.of_records(_SIZE) // _SIZE
    with topic_of(node) as topic:
        fill(node, topic, count, _SIZE, "1")
        read(node, topic, count // _WARM_UP_SHARE, 1, **_login(node))
        return read(node, topic, count, 1, **_login(node))


def _node_with_tls(node_class: type[Node], folder: Path) -> Node:
    folder.mkdir(parents=True)
    for name, text in new_certificates().items():
        (folder / name).write_text(text)
    prefix = f"listener.name.{_LISTENER.lower()}.ssl.keystore"
    return node_class(
        folder,
        1,
        overrides={
            **OVERRIDES,
            f"{prefix}.type": "PEM",
            f"{prefix}.location": str(folder / "node.pem"),
        },
        jvm_options=KAFKA_JVM,
        secure_listeners={_LISTENER: "SSL"},
    )


_SUBJECT = Subject("node with tls", _node_with_tls, is_shared=True)
_METRICS = (
    Metric("rate", "MB/s", True, 1.0),
    Metric("broker_cpu", "broker CPU-s per GB", False, 1.0),
)

TLS_ITEMS = (
    Item("tls-produce-1KiB", _produce, _METRICS, _SUBJECT),
    Item("tls-consume-1KiB", _consume, _METRICS, _SUBJECT),
)
