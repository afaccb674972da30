"""A Spindle broker in a cluster of a later release: it stops and says why, and harms nobody."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from peers.node import KafkaNode, Node, SpindleNode

LIMIT_S = 60.0


@pytest.fixture
def later(tmp_path: Path) -> Iterator[Node]:
    """Run Kafka at a metadata.version that is under development in its release."""
    overrides = {"unstable.feature.versions.enable": "true"}
    node = KafkaNode(tmp_path / "kafka", directory_count=1, overrides=overrides)
    node.format("--feature", "metadata.version=34")
    node.start()
    yield node
    node.kill()


def test_a_broker_stops_at_a_metadata_version_that_it_does_not_know(
    later: Node, tmp_path: Path
) -> None:
    broker = SpindleNode(
        tmp_path / "spindle",
        directory_count=2,
        cluster_id=later.cluster_id,
        node_id=2,
        roles=("broker",),
        voters=[later],
    )
    broker.format()
    broker.start(wait=False)
    assert broker.process is not None
    try:
        assert broker.process.wait(LIMIT_S) == 1
    except subprocess.TimeoutExpired:
        pytest.fail(f"the broker goes on:\n{broker.output()}")
    finally:
        broker.kill()
    reason = "metadata.version 34 (4.5-IV0) is newer than this Spindle: it knows levels up to 33"
    lines = [line for line in broker.output().splitlines() if reason in line]
    assert any("shutting down" in line for line in lines), broker.output()
    assert "Traceback" not in broker.output()
    admin = AdminClient({"bootstrap.servers": later.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic("t", 1, 1)])["t"].result(30)
