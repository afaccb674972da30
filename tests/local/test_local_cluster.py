"""`spindle.local.Cluster`: a cluster of processes for scripts and notebooks."""

import inspect
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest

from spindle.client.blocking.client import WireClient
from spindle.client.blocking.settings import client_settings
from spindle.local import Cluster, ClusterError
from spindle.testing import Cluster as FaultyCluster

pytestmark = pytest.mark.timeout(300)

OWNER = """
import sys
import textwrap
from spindle.local import Cluster
cluster = Cluster(brokers=2)
print(cluster.home, *(node.pid for node in cluster.nodes), flush=True)
sys.stdin.read()
"""


def topics_of(cluster: Cluster) -> set[str]:
    """Return the names of the topics, from a broker that answers."""
    settings = client_settings({"bootstrap.servers": cluster.bootstrap_servers})
    with WireClient(settings) as client:
        return set(client.metadata().topics)


async def test_a_cluster_works_under_a_running_event_loop_and_leaves_nothing() -> None:
    """The cells of a notebook run in an event loop."""
    cluster = Cluster(directories=2)
    home = cluster.home
    (broker,) = cluster.brokers
    assert [path.name for path in broker.log_dirs] == ["disk-1", "disk-2"]
    pids = [broker.pid]
    broker.kill()
    assert not broker.is_running
    with pytest.raises(ClusterError, match="node 1 does not run"):
        broker.stop()
    broker.start()
    with pytest.raises(ClusterError, match="node 1 is running already"):
        broker.start()
    cluster.create_topic("t")
    cluster.stop()
    assert not broker.is_running
    cluster.start()
    assert topics_of(cluster) == {"t"}
    pids.append(broker.pid)
    cluster.close()
    assert not [pid for pid in pids if pid is not None and psutil.pid_exists(pid)]
    assert not home.exists()


@pytest.mark.full
def test_a_stopped_cluster_starts_again_with_its_topics(tmp_path: Path) -> None:
    with Cluster(brokers=3, folder=tmp_path) as cluster:
        cluster.create_topic("orders", partitions=2)
        cluster.stop()
        assert [node.is_running for node in cluster.nodes] == [False] * 3
        codes = {node.wait_until_ended() for node in cluster.nodes}
        assert codes == {128 + signal.SIGTERM}
        cluster.stop()
        cluster.start()
        assert topics_of(cluster) == {"orders"}
    assert (tmp_path / "node-1" / "server.properties").exists()


@pytest.mark.full
def test_nothing_is_left_when_the_interpreter_is_killed() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        home, *pids = owner.stdout.readline().split()
        processes = psutil.Process(owner.pid).children(recursive=True)
        assert {int(pid) for pid in pids} < {process.pid for process in processes}
        owner.kill()
    _, alive = psutil.wait_procs(processes, timeout=60)
    assert not alive
    assert not Path(home).exists()


@pytest.mark.full
@pytest.mark.parametrize("documented", [Cluster, FaultyCluster])
def test_the_example_of_the_reference_runs(documented: type[Cluster]) -> None:
    doc = inspect.getdoc(documented) or ""
    (example,) = re.findall(r"```python\n(.*?)```", doc, re.DOTALL)
    exec(textwrap.dedent(example), {})
