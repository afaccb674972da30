"""Rows are written once, whatever dies when: the scenarios on a Spindle node."""

from collections.abc import Iterator

import pytest
from sink_run import SinkRun
from sink_scenarios import SCENARIOS, Scenario

from spindle.client.blocking.client import WireClient
from spindle.client.blocking.coordinators import CoordinatorCache
from spindle.client.blocking.settings import client_settings
from spindle.client.blocking.transactions import ProducerTransaction, stable_offsets
from spindle.client.transactions import StoredOffset
from spindle.common.ids import TopicPartition
from spindle.testing.cluster.cluster import Cluster

PROPERTIES = {
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(1, 1, properties=PROPERTIES) as cluster:
        yield cluster


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_rows_are_written_once(
    cluster: Cluster, scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = scenario.__name__
    cluster.create_topic(topic, 2)
    scenario(SinkRun(cluster.bootstrap_servers, topic, f"query-{topic}", "first"), monkeypatch)


def test_the_first_offset_of_a_group_is_unstable_while_it_is_being_stored(
    cluster: Cluster,
) -> None:
    head, next_part = TopicPartition("state", 0), TopicPartition("state", 1)
    stored = {head: StoredOffset(1, "head"), next_part: StoredOffset(1, "part")}
    cluster.create_topic("state", 2)
    settings = client_settings({"bootstrap.servers": cluster.bootstrap_servers})
    with WireClient(settings) as client:
        known = CoordinatorCache(client)
        assert stable_offsets(known, "first", head) == {}
        writer = ProducerTransaction(known, "first", 60_000)
        writer.commit_offsets("first", stored)
        assert stable_offsets(known, "first", head, waits=False) is None
        writer.end(commit=True)
        assert stable_offsets(known, "first", head) == stored
