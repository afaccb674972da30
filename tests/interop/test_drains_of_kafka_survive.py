"""Drains of an Apache Kafka cluster under traffic that break in the middle: see `drain_scenarios`.

The tests depend on their order.

The scenario in which the drained disk dies is in the other two modules. If a broker of Kafka has
not told the controller yet in which directory a replica is, and that directory dies, it goes on
as the leader without a log (seen with 4.3.1 on a busy machine), and nobody can copy the partition.
"""

from __future__ import annotations

from collections.abc import Iterator

import drain_scenarios
import pytest
from peers.drained_cluster import DrainedCluster

pytestmark = [pytest.mark.timeout(600), drain_scenarios.needs_failing_disks]


@pytest.fixture(scope="module")
def drained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DrainedCluster]:
    folder = tmp_path_factory.mktemp("drains")
    with drain_scenarios.drained_cluster(folder, ("kafka", "kafka", "kafka")) as one:
        yield one


def test_the_drain_and_then_a_broker_are_killed(drained: DrainedCluster) -> None:
    drain_scenarios.kill_the_drain_and_a_broker(drained)


def test_a_killed_drain_is_cancelled(drained: DrainedCluster) -> None:
    drain_scenarios.cancel_a_killed_drain(drained)


def test_the_disk_that_receives_dies(drained: DrainedCluster) -> None:
    drain_scenarios.fail_the_receiving_disk(drained)


def test_a_disk_that_is_dead_already_is_drained_from_the_leaders(drained: DrainedCluster) -> None:
    drain_scenarios.drain_a_dead_disk(drained)


def test_nothing_that_was_acknowledged_is_lost(drained: DrainedCluster) -> None:
    drain_scenarios.check_records(drained)
