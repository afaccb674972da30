"""Mistakes in the handling of hostile records are found: each one put back as a mutant."""

from pathlib import Path

import pytest

from verification.fuzz.run import FuzzPlan, run
from verification.fuzz.target import TargetNode

SEED = 2026
SECONDS = 90.0


@pytest.mark.full
@pytest.mark.timeout(SECONDS + 120)
@pytest.mark.parametrize(
    ("mutant", "finding"),
    [
        ("records_that_do_not_parse_are_a_dead_disk", "offline|failed"),
        (
            "searches_decode_without_limits_on_the_thread_of_the_directory",
            "a request of the canary took|no answer to|memory grew",
        ),
    ],
)
async def test_a_mistake_with_hostile_records_is_found(
    tmp_path: Path, mutant: str, finding: str
) -> None:
    node = TargetNode(tmp_path, mutant=mutant)
    node.start()
    try:
        outcome = await run(FuzzPlan(node.host, node.port, SEED, SECONDS, 1), node)
    finally:
        node.stop()
    assert outcome.finding is not None
    assert any(text in outcome.finding for text in finding.split("|")), outcome.finding
