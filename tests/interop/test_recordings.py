"""Spindle plays the scenarios that Apache Kafka was recorded in; no Java is needed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from peers.failing_disk import why_no_failing_disks
from recordings.all_scenarios import SCENARIOS
from recordings.programs import Program, program_of
from recordings.record import difference, recording_file, stored_difference

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="session", autouse=True)
def kafka_is_available() -> None:
    """Nothing to check: the recordings stand for Kafka."""


@pytest.fixture(scope="module")
def spindle() -> Iterator[Program]:
    with program_of("spindle") as program:
        yield program


@pytest.mark.parametrize("name", SCENARIOS)
def test_spindle_differs_from_the_recording_of_kafka_only_where_it_is_known_to(
    name: str, spindle: Program, tmp_path: Path
) -> None:
    scenario = SCENARIOS[name]
    reason = why_no_failing_disks() if scenario.needs_disks else ""
    if reason:
        pytest.skip(reason)
    seen = difference(name, "spindle", scenario.record(spindle, tmp_path))
    assert seen == stored_difference(name, "spindle")


def test_every_recording_has_its_scenario() -> None:
    folder = recording_file("any").parent
    assert sorted(path.stem for path in folder.glob("*.txt")) == sorted(SCENARIOS)
