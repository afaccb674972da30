"""Notes of cordons where the controller, or the broker, is that of Apache Kafka."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest
from peers.java_tools import JavaTools
from peers.node import KafkaNode, SpindleNode
from peers.paths import SPINDLE
from peers.split_cluster import SplitCluster
from waiting import wait_for

pytestmark = pytest.mark.timeout(180)
LIMIT_S = 60.0
KAFKA, OURS = 1, 2


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, java_tools: JavaTools
) -> Iterator[SplitCluster]:
    folder = tmp_path_factory.mktemp("mixed-cordons")
    kinds = [KafkaNode, SpindleNode]
    with SplitCluster(folder, java_tools, [KafkaNode], kinds) as running:
        yield running


def disks(cluster: SplitCluster, *words: str) -> subprocess.CompletedProcess[str]:
    command = [str(SPINDLE), "disks", words[0], "-b", cluster.bootstrap, *words[1:]]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def configure(cluster: SplitCluster, broker: int, *how: str) -> None:
    entity = ("--entity-type", "brokers", "--entity-name", str(broker))
    cluster.run("configs", *entity, "--alter", *how).check()


def shown(cluster: SplitCluster, broker: int) -> str:
    """Return the dynamic configuration of a broker, as kafka-configs shows it."""
    entity = ("--entity-type", "brokers", "--entity-name", str(broker))
    return cluster.run("configs", *entity, "--describe").check().stdout


def until_shown(cluster: SplitCluster, *, present: str = "", absent: str = "no such text") -> str:
    return wait_for(
        lambda: shown(cluster, OURS),
        lambda text: present in text and absent not in text,
        limit_s=LIMIT_S,
        pause_s=0,
    )


def test_a_broker_ends_its_cordon_under_a_controller_of_kafka(cluster: SplitCluster) -> None:
    first, second = map(str, cluster.brokers[OURS].log_dirs)
    assert disks(cluster, "cordon", str(OURS), second).returncode == 0
    done = disks(cluster, "cordon", str(OURS), first, "--reason", "short, one", "--for", "2s")
    assert done.stdout == f"Cordoned {first} of broker {OURS}.\n", done.stderr
    until_shown(cluster, present=f"cordoned.log.dirs={second} ", absent="spindle.cordon.notes=[")
    assert disks(cluster, "uncordon", str(OURS), second).returncode == 0


def test_a_note_goes_with_the_cordon_that_kafkas_tool_removes(cluster: SplitCluster) -> None:
    first = str(cluster.brokers[OURS].log_dirs[0])
    assert disks(cluster, "cordon", str(OURS), first, "--owner", "ops").returncode == 0
    text = until_shown(cluster, present="spindle.cordon.notes=[")
    assert '"owner":"ops"' in text
    configure(cluster, OURS, "--delete-config", "cordoned.log.dirs")
    until_shown(cluster, absent="spindle.cordon.notes=[")
    configure(cluster, OURS, "--add-config", f"cordoned.log.dirs={first}")
    text = until_shown(cluster, present=f"cordoned.log.dirs={first} ")
    assert "spindle.cordon.notes=[" not in text
    configure(cluster, OURS, "--delete-config", "cordoned.log.dirs")


def test_a_broker_of_kafka_is_cordoned_without_a_note(cluster: SplitCluster) -> None:
    first = str(cluster.brokers[KAFKA].log_dirs[0])
    refused = disks(cluster, "cordon", str(KAFKA), first, "--for", "1h")
    assert refused.returncode == 1
    assert refused.stderr.startswith(f"broker {KAFKA} keeps no notes of cordons")
    assert "cordoned.log.dirs" not in shown(cluster, KAFKA)
    assert disks(cluster, "cordon", str(KAFKA), first).returncode == 0
    assert f"cordoned.log.dirs={first} " in shown(cluster, KAFKA)
    assert disks(cluster, "uncordon", str(KAFKA), first).returncode == 0
