"""Cuts of the network between running nodes, and between a node and its clients."""

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest
from records import client_of, read, send

from spindle.client.errors import ClientError
from spindle.common.errors import ApiError
from spindle.testing import Cluster, ClusterError

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, properties={"replica.lag.time.max.ms": 2000}) as cluster:
        cluster.create_topic("t", configs={"min.insync.replicas": 2})
        yield cluster


def answers(cluster: Cluster, broker: int) -> bool:
    """Return whether a broker answers a client that connects now."""
    host, _, port = str(cluster.broker(broker).bootstrap_servers).partition(":")
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 5) as connection:
        connection.settimeout(1)
        # ApiVersions 0 with correlation id 1 and no client id.
        connection.sendall(bytes.fromhex("0000000a0012000000000001ffff"))
        return bool(connection.recv(4))
    return False


@pytest.mark.parametrize("how", ["stall", "break"])
def test_an_isolated_leader_loses_its_partitions_and_comes_back(cluster: Cluster, how: str) -> None:
    leader = cluster.wait_for_leader("t")
    send(cluster, [b"before"])
    cluster.isolate(leader, how=how)
    assert not answers(cluster, leader)
    cluster.wait_until_fenced(leader)
    assert cluster.wait_for_leader("t", other_than=leader) != leader
    with pytest.raises(ClusterError, match="cut off"):
        cluster.wait_until_in_sync()
    cluster.heal_network()
    assert answers(cluster, leader)
    send(cluster, [b"after"])
    cluster.wait_until_in_sync()
    assert read(cluster, 2) == [b"before", b"after"]


@pytest.mark.full
def test_a_follower_that_is_cut_off_from_its_leader_leaves_the_isr() -> None:
    # The controller is apart, so that it hears of the changed ISR.
    with Cluster(brokers=3, controllers=1, properties={"replica.lag.time.max.ms": 2000}) as cluster:
        cluster.create_topic("t", configs={"min.insync.replicas": 2})
        leader = cluster.wait_for_leader("t")
        follower = next(b.node_id for b in cluster.brokers if b.node_id != leader)
        cluster.cut(leader, follower)
        send(cluster, [b"meanwhile"])
        cluster.heal_network()
        cluster.wait_until_in_sync()
        assert read(cluster, 1) == [b"meanwhile"]


@pytest.mark.full
@pytest.mark.parametrize("direction", ["requests", "answers"])
def test_a_cut_in_one_direction_stops_replication(cluster: Cluster, direction: str) -> None:
    leader = cluster.wait_for_leader("t")
    followers = [b.node_id for b in cluster.brokers if b.node_id != leader]
    for follower in followers:
        ends = (follower, leader) if direction == "requests" else (leader, follower)
        cluster.cut(*ends, both=False)
    with pytest.raises((ClientError, ApiError)):
        send(cluster, [b"one"], api_timeout_ms=1500)
    cluster.heal_network()
    cluster.wait_until_in_sync()
    send(cluster, [b"two"])
    assert read(cluster, 1)[-1] == b"two"


@pytest.mark.full
@pytest.mark.parametrize("how", ["stall", "break"])
def test_clients_are_cut_off_and_replication_continues(cluster: Cluster, how: str) -> None:
    leader = cluster.wait_for_leader("t")
    cluster.cut_clients(leader, how=how)
    assert not answers(cluster, leader)
    with pytest.raises((ClientError, ApiError)):
        send(cluster, [b"lost"], api_timeout_ms=1500)
    assert cluster.wait_for_leader("t") == leader
    cluster.heal_network()
    send(cluster, [b"two"])
    cluster.wait_until_in_sync()


@pytest.mark.full
def test_a_stalled_connection_continues_where_it_was(cluster: Cluster) -> None:
    leader = cluster.wait_for_leader("t")
    with client_of(cluster) as client:
        view = client.metadata(["t"])
        assert view.topic("t")
        cluster.cut_clients(leader)
        sender = threading.Thread(target=send, args=(cluster, [b"held"]))
        sender.start()
        cluster.heal_network()
        sender.join()
    assert read(cluster, 1) == [b"held"]


def test_wrong_cuts_are_refused(cluster: Cluster) -> None:
    with pytest.raises(ClusterError, match="node 1 cannot be cut off from itself"):
        cluster.cut(1, 1)
    with pytest.raises(ClusterError, match="there is no node 9"):
        cluster.cut(1, 9)
    with pytest.raises(ValueError, match="'sever' is none of none, stall, break"):
        cluster.cut(1, 2, how="sever")
