"""Healings of a Spindle cluster under traffic: see `heal_scenarios`.

The tests depend on their order.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import drain_scenarios
import heal_scenarios
import pytest
from peers.drained_cluster import DrainedCluster
from peers.java_tools import JavaTools

pytestmark = [pytest.mark.timeout(600), drain_scenarios.needs_failing_disks]


@pytest.fixture(scope="module")
def drained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DrainedCluster]:
    folder = tmp_path_factory.mktemp("heals")
    with drain_scenarios.drained_cluster(folder, ("spindle", "spindle", "spindle")) as one:
        yield one


def test_the_replicas_of_a_dead_disk_are_made_elsewhere(
    drained: DrainedCluster, java_tools: JavaTools
) -> None:
    heal_scenarios.heal_a_dead_disk(drained, java_tools)


def test_a_plan_of_kafkas_tool_is_cancelled_and_a_killed_broker_waited_for_within_its_grace(
    drained: DrainedCluster, java_tools: JavaTools, tmp_path: Path
) -> None:
    heal_scenarios.wait_for_a_killed_broker(drained, java_tools, tmp_path / "plan")


def test_the_replicas_of_a_killed_broker_are_made_elsewhere(drained: DrainedCluster) -> None:
    heal_scenarios.heal_a_killed_broker(drained)


def test_nothing_that_was_acknowledged_is_lost(drained: DrainedCluster) -> None:
    heal_scenarios.check_records(drained)
