"""Rows are written once, whatever dies when: the scenarios on a Spindle node."""

from collections.abc import Iterator

import pytest
from sink_run import SinkRun
from sink_scenarios import SCENARIOS, Scenario

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
