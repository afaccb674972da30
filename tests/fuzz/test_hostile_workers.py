"""Members of a share group that break the rules: a node stands them, and a mistake is found."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from verification.fuzz.target import TargetNode
from verification.fuzz.wire import Finding
from verification.fuzz.workers import DeliveryChecks, HostileWorkers

SEED = 2026
MUTANT = "acknowledgements_of_records_that_nobody_holds_are_taken"


async def play(node: TargetNode, deliveries: int) -> DeliveryChecks:
    """Let the workers play until they have got so many records."""
    workers = HostileWorkers(node.host, node.port, SEED)
    async with asyncio.timeout(100):
        await workers.play(lambda: workers.checks.delivered >= deliveries)
    return workers.checks


@pytest.mark.timeout(120)
async def test_hostile_acknowledgements_harm_nobody(start_node: Callable[..., TargetNode]) -> None:
    node = start_node()
    checks = await play(node, 600)
    assert checks.confirmed > 50
    node.check()


@pytest.mark.full
@pytest.mark.timeout(180)
async def test_an_acknowledgement_of_what_nobody_holds_is_found(tmp_path: Path) -> None:
    node = TargetNode(tmp_path, mutant=MUTANT)
    node.start()
    try:
        with pytest.RaisesGroup(
            pytest.RaisesExc(Finding, match="delivered"), flatten_subgroups=True
        ):
            await play(node, 100_000)
    finally:
        node.stop()


def test_a_record_that_comes_again_after_its_confirmation_is_found() -> None:
    checks = DeliveryChecks()
    checks.deliver(0, [5], 1, checks.now())
    early = checks.now()
    checks.confirm(0, [5])
    checks.deliver(0, [5], 2, early)  # the request was sent before the confirmation
    with pytest.raises(Finding, match="offset 5 of workers-0 was delivered again"):
        checks.deliver(0, [5], 3, checks.now())


def test_a_delivery_count_that_does_not_rise_is_found() -> None:
    checks = DeliveryChecks()
    checks.deliver(1, [7], 2, checks.now())
    with pytest.raises(Finding, match="with count 2 after count 2"):
        checks.deliver(1, [7], 2, checks.now())
