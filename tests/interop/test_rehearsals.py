"""A few random schedules of faults on real brokers, under traffic of librdkafka and of Java.

Transactional producers and exactly-once copiers of librdkafka take part in all of them.

`python -m verification.rehearsal` plays hundreds of them.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from peers.paths import java, kafka_libs

from verification.rehearsal.rehearsal import JavaHome, new_cluster, rehearse
from verification.rehearsal.schedule import draw_schedule

pytestmark = pytest.mark.timeout(300)


def test_random_schedules_lose_nothing(tmp_path: Path) -> None:
    home = JavaHome(java(), kafka_libs())
    outcomes = []
    with new_cluster(tmp_path) as cluster:
        for seed, with_java in ((2, True), (3, False), (16, False)):
            schedule = replace(draw_schedule(seed), with_java=with_java)
            outcome = rehearse(schedule, cluster, home, str(seed))
            assert outcome.is_fine, outcome.report
            assert outcome.findings.acknowledged > 100
            outcomes.append(outcome.findings)
    assert sum(findings.committed for findings in outcomes) > 10
    assert sum(findings.copied for findings in outcomes) > 10
    assert any(findings.aborted for findings in outcomes)
