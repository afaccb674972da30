"""Schedules keep one broker at a time suffering, and come again from their seed."""

import pytest

from verification.rehearsal.schedule import (
    BROKERS,
    DIRECTORIES,
    METADATA_DISK,
    PARTITIONS,
    PlannedFault,
    draw_schedule,
)

SEEDS = range(1, 301)
HARMLESS = {PlannedFault.CORDON, PlannedFault.UNCORDON, PlannedFault.MOVE}


def test_a_seed_gives_the_same_schedule_again() -> None:
    assert draw_schedule(7) == draw_schedule(7)
    assert draw_schedule(7) != draw_schedule(8)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_text_names_every_step(seed: int) -> None:
    schedule = draw_schedule(seed)
    steps = [step for episode in schedule.episodes for step in episode.steps]
    assert all(str(step) in schedule.text for step in steps)


def test_only_the_victim_suffers() -> None:
    for seed in SEEDS:
        for episode in draw_schedule(seed).episodes:
            hurt = {step.broker for step in episode.steps if step.fault not in HARMLESS}
            assert hurt == {episode.victim}


def test_only_disks_that_were_hurt_are_replaced() -> None:
    for seed in SEEDS:
        for episode in draw_schedule(seed).episodes:
            hurt = set()
            for step in episode.steps:
                if step.fault is PlannedFault.REPLACE:
                    assert step.disk in hurt
                    assert step.disk != METADATA_DISK
                elif step.fault.has_disk and step.fault not in HARMLESS:
                    hurt.add(step.disk)


def test_only_disks_that_were_broken_since_are_brought_online() -> None:
    for seed in SEEDS:
        for episode in draw_schedule(seed).episodes:
            broken: set[int] = set()
            for step in episode.steps:
                if step.fault is PlannedFault.BRING_ONLINE:
                    assert step.disk in broken
                    assert step.disk != METADATA_DISK
                    broken.remove(step.disk)
                elif step.fault.has_disk and step.fault not in {*HARMLESS, PlannedFault.SLOW}:
                    broken.add(step.disk)


def test_disks_come_back_both_ways() -> None:
    schedules = list(map(draw_schedule, SEEDS))
    ways = {episode.brings_online for one in schedules for episode in one.episodes}
    assert ways == {True, False}
    for way in ("by bringing it online", "by a restart"):
        assert any(f"heal everything, directories {way}" in one.text for one in schedules)


def test_empty_disks_and_disks_with_logs_are_brought_online() -> None:
    before = set()
    for seed in SEEDS:
        for episode in draw_schedule(seed).episodes:
            last: dict[int, PlannedFault] = {}
            for step in episode.steps:
                if step.fault is PlannedFault.BRING_ONLINE:
                    before.add(last[step.disk])
                if step.fault.has_disk and step.fault not in HARMLESS:
                    last[step.disk] = step.fault
    assert {
        PlannedFault.FAIL,
        PlannedFault.FILL,
        PlannedFault.READONLY,
        PlannedFault.TEAR,
        PlannedFault.REPLACE,
    } <= before


def test_every_deed_and_place_comes_up() -> None:
    steps = [
        step for seed in SEEDS for episode in draw_schedule(seed).episodes for step in episode.steps
    ]
    assert {step.fault for step in steps} == set(PlannedFault)
    assert {step.broker for step in steps} == set(range(1, BROKERS + 1))
    assert {step.disk for step in steps} == set(range(1, DIRECTORIES + 1))
    assert {step.partition for step in steps} == set(range(PARTITIONS))
