"""`spindle.testing.Cluster`: starts, ends, leaves nothing, and its nodes die and come back."""

import os
import signal
import socket
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import psutil
import pytest
from records import read, send

from spindle.local.control_socket import NoReply, ask, listen, read_line, send_result
from spindle.testing import Cluster, ClusterError

pytestmark = pytest.mark.timeout(300)

OWNER = """
import sys
from spindle.testing import Cluster
cluster = Cluster(brokers=2, directories=2)
print(cluster.nodes[0].log_file.parents[1], flush=True)
sys.stdin.read()
"""


def descendants() -> set[psutil.Process]:
    """Return all processes below this one; an earlier test may have left a Java of Spark."""
    return set(psutil.Process().children(recursive=True))


def test_a_cluster_starts_serves_and_leaves_nothing() -> None:
    before = descendants()
    with Cluster(brokers=3, directories=3) as cluster:
        home = cluster.brokers[0].log_file.parents[1]
        assert len(cluster.bootstrap_servers.split(",")) == 3
        assert [len(broker.disks) for broker in cluster.brokers] == [3, 3, 3]
        cluster.create_topic("t", partitions=3, configs={"min.insync.replicas": 2})
        send(cluster, [b"one", b"two"], partition=1)
        assert read(cluster, 2, partition=1) == [b"one", b"two"]
        cluster.wait_until_in_sync()
        with urllib.request.urlopen(cluster.broker(2).metrics_url) as page:
            assert b"kafka_server" in page.read()
        nodes_and_keeper = descendants() - before
        assert len(nodes_and_keeper) == 4
    assert not descendants() - before
    assert not home.exists()
    cluster.close()


@pytest.mark.full
def test_nothing_is_left_when_the_owner_is_killed() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        home = Path(owner.stdout.readline().strip())
        processes = psutil.Process(owner.pid).children(recursive=True)
        assert len(processes) == 3
        # A paused node cannot notice anything by itself.
        processes[-1].suspend()
        owner.kill()
    _, alive = psutil.wait_procs(processes, timeout=60)
    assert not alive
    assert not home.exists()


@pytest.mark.full
def test_nodes_end_when_their_supervisor_is_killed() -> None:
    before = descendants()
    with Cluster(brokers=2) as cluster:
        (keeper,) = set(psutil.Process().children()) - before
        nodes = keeper.children()
        assert len(nodes) == 2
        nodes[0].suspend()
        keeper.kill()
        _, alive = psutil.wait_procs(nodes, timeout=60)
        assert not alive
        with pytest.raises(ClusterError, match="has ended"):
            cluster.broker(1).kill()


@pytest.mark.full
def test_clusters_do_not_meet() -> None:
    with Cluster() as one, Cluster() as other:
        assert one.bootstrap_servers != other.bootstrap_servers
        one.create_topic("t")
        other.create_topic("t")


def test_a_folder_of_the_user_stays(tmp_path: Path) -> None:
    with Cluster(directories=2, folder=tmp_path / "kept") as cluster:
        (broker,) = cluster.brokers
        assert broker.property_file.parent == tmp_path / "kept"
    assert broker.log_file.exists()
    assert sorted(disk.path.name for disk in broker.disks) == ["disk-1", "disk-2"]


def test_a_folder_with_a_comma_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=r"a,b/disk-1' has a comma, which separates the paths"):
        Cluster(folder=tmp_path / "a,b")
    assert not list(tmp_path.iterdir())


def test_a_control_socket_may_have_a_long_path(tmp_path: Path) -> None:
    """An address of a Unix socket has 107 bytes; temporary folders may be deeper."""
    folder = tmp_path / ("x" * 100) / ("y" * 100)
    folder.mkdir(parents=True)
    path = str(folder / "keeper.sock")

    def answer(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        with connection:
            read_line(connection)
            send_result(connection, "here")

    with listen(path) as listening, ThreadPoolExecutor(1) as pool:
        done = pool.submit(answer, listening)
        assert ask(path, {"do": "it"}, 30.0) == "here"
        done.result()
    with pytest.raises(NoReply):
        ask(str(tmp_path / ("z" * 200) / "keeper.sock"), {}, 30.0)


@pytest.mark.full
def test_properties_for_all_nodes_and_for_one() -> None:
    with Cluster(
        brokers=2,
        controllers=1,
        racks=2,
        properties={"num.partitions": 3, "auto.create.topics.enable": False},
        node_properties={2: {"num.partitions": 5}},
    ) as cluster:
        texts = {node.node_id: node.property_file.read_text() for node in cluster.nodes}
        (controller,) = cluster.controllers
        assert controller.node_id == 101
        assert not controller.is_broker
        assert controller.bootstrap_servers is None
    assert "num.partitions=3" in texts[1]
    assert "auto.create.topics.enable=false" in texts[1]
    assert "num.partitions=5" in texts[2]
    assert "broker.rack=rack-2" in texts[2]
    assert "process.roles=broker\n" in texts[1]


def test_a_node_that_does_not_start_is_reported_with_its_log() -> None:
    before = descendants()
    with pytest.raises(ClusterError, match=r"node 1 did not start \(exit code 1\)") as refusal:
        Cluster(node_properties={1: {"spindle.metrics.listener": "192.0.2.1:9"}})
    assert "cannot listen on 192.0.2.1:9" in str(refusal.value)
    assert not descendants() - before


@pytest.mark.parametrize(
    ("wish", "complaint"),
    [
        ({"brokers": 0}, "brokers 0 is not in 1 to 64"),
        ({"directories": 65}, "directories 65 is not in 1 to 64"),
        ({"controllers": -1}, "controllers -1 is not in 0 to 64"),
    ],
)
def test_an_impossible_shape_is_refused(wish: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Cluster(**wish)


def test_a_number_that_is_a_text_and_a_time_that_is_no_time_are_refused() -> None:
    with pytest.raises(TypeError, match="brokers '3' is not an integer"):
        Cluster(brokers=cast("int", "3"))
    with pytest.raises(ValueError, match="start_timeout_s 0 is not above 0"):
        Cluster(start_timeout_s=0)


def test_a_wrong_property_and_a_wrong_node_are_refused() -> None:
    with pytest.raises(ClusterError, match="num\\.partitions"):
        Cluster(properties={"num.partitions": "many"})
    with pytest.raises(ClusterError, match=r"min\.insync\.replcias is unknown"):
        Cluster(node_properties={1: {"min.insync.replcias": 2}})
    with pytest.raises(ClusterError, match="there is no node 7; the nodes are 1"):
        Cluster(node_properties={7: {}})


def test_a_topic_on_chosen_brokers() -> None:
    with Cluster(brokers=3) as cluster:
        cluster.create_topic("t", replicas=[[3, 1], [2, 3]])
        assert [cluster.wait_for_leader("t", partition) for partition in (0, 1)] == [3, 2]
        with pytest.raises(ValueError, match="give it alone"):
            cluster.create_topic("u", partitions=2, replicas=[[1], [2]])


def test_a_killed_broker_comes_back_with_its_records() -> None:
    with Cluster(brokers=3, directories=2) as cluster:
        cluster.create_topic("t", configs={"min.insync.replicas": 2})
        leader = cluster.wait_for_leader("t")
        send(cluster, [b"before"])
        broker = cluster.broker(leader)
        broker.kill()
        assert not broker.is_running
        with pytest.raises(ClusterError, match=f"node {leader} does not run"):
            broker.kill()
        assert cluster.wait_for_leader("t") != leader
        send(cluster, [b"meanwhile"])
        broker.start()
        with pytest.raises(ClusterError, match=f"node {leader} is running already"):
            broker.start()
        cluster.wait_until_in_sync()
        assert read(cluster, 2) == [b"before", b"meanwhile"]


@pytest.mark.full
def test_a_node_may_end_while_a_test_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    with Cluster(brokers=3) as cluster:
        cluster.create_topic("t")
        leader = cluster.wait_for_leader("t")
        broker = cluster.broker(leader)
        asked = broker.await_condition

        def die_first(timeout_s: float, **condition: Any) -> Any:
            broker.kill()
            return asked(timeout_s, **condition)

        monkeypatch.setattr(broker, "await_condition", die_first)
        assert cluster.wait_for_leader("t", other_than=leader) != leader
        broker.start()
        cluster.wait_for_leader("t")
        cluster.wait_until_fenced(leader)


def test_a_stopped_broker_ends_in_order() -> None:
    with Cluster(brokers=3) as cluster:
        broker = cluster.broker(3)
        broker.stop()
        assert "shut down completed" in broker.log_tail()
        assert broker.wait_until_ended() == 128 + signal.SIGTERM
        broker.start()
        broker.restart()
        cluster.wait_until_in_sync()


@pytest.mark.full
def test_a_paused_broker_is_fenced_and_continues() -> None:
    with Cluster(brokers=3) as cluster:
        cluster.create_topic("t")
        leader = cluster.wait_for_leader("t")
        cluster.broker(leader).pause()
        assert cluster.broker(leader).is_paused
        cluster.wait_until_fenced(leader)
        assert cluster.wait_for_leader("t") != leader
        send(cluster, [b"meanwhile"])
        cluster.broker(leader).resume()
        cluster.wait_until_in_sync()
        assert read(cluster, 1) == [b"meanwhile"]


@pytest.mark.full
def test_waiting_has_a_limit() -> None:
    with Cluster(brokers=2) as cluster:
        with pytest.raises(ClusterError, match="there is no partition nothing-0"):
            cluster.wait_for_leader("nothing", timeout_s=0.1)
        cluster.create_topic("t")
        with pytest.raises(ClusterError, match="there is no partition t-9"):
            cluster.broker(1).disk_of("t", 9)
        with pytest.raises(TimeoutError, match="not yet a leader of t-0"):
            cluster.wait_for_leader("t", other_than=(1, 2), timeout_s=0.1)
        with pytest.raises(TimeoutError, match="not yet broker 2 fenced"):
            cluster.wait_until_fenced(2, timeout_s=0.1)
        cluster.broker(2).kill()
        with pytest.raises(ClusterError, match="node 2 does not run, is paused or cut off"):
            cluster.wait_until_in_sync()


def test_a_forked_process_ends_nothing() -> None:
    with Cluster() as cluster:
        pid = os.fork()
        if pid == 0:
            cluster.close()
            os._exit(0)
        os.waitpid(pid, 0)
        assert cluster.broker(1).is_running
