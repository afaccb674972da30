"""The audit as a job of a real Spark session: same findings as here, also after its driver died."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from broker_directories import clean_directory
from seeded_faults import FAULTS
from waiting import wait_until

from spindle.audit.fleet import audit_directories
from spindle.audit.run import run_audit
from spindle.cli.main import run
from spindle.pipeline import get_spark

pytestmark = [pytest.mark.timeout(180), pytest.mark.spark]

DAMAGE = (
    "a_bit_of_a_producer_snapshot_flips",
    "an_aborted_transaction_is_forgotten",
    "an_offset_index_gets_a_tail",
    "the_epochs_vanish",
)
LIMIT_S = 90.0


@pytest.fixture
def roots(tmp_path: Path) -> list[Path]:
    roots = []
    for number, name in enumerate(DAMAGE):
        root = clean_directory(tmp_path / f"r{number}", number, node_id=number)
        FAULTS[name][1](random.Random(name), root)
        roots.append(root)
    return roots


def test_a_session_finds_what_the_audit_here_finds(roots: list[Path], tmp_path: Path) -> None:
    spark = get_spark("audit", "local[2]", {"spark.driver.memory": "1g"})
    try:
        hosts: dict[str | Path, Sequence[str]] = dict.fromkeys(
            roots[:2], ("elsewhere.invalid", "localhost")
        )
        audit = audit_directories(
            spark, roots, checks_records=True, folder=tmp_path / "parts", hosts=hosts
        )
        expected = run_audit(roots, checks_records=True, recheck_ms=0)
        assert audit.report.findings == expected.findings
        rows = [(row.kind, row.path) for row in audit.findings.collect()]
        assert rows == [(finding.kind.text, finding.path) for finding in expected.findings]
        assert len(rows) >= len(DAMAGE)
        assert list((tmp_path / "parts").iterdir()) == []
    finally:
        spark.stop()


def test_an_audit_continues_after_its_driver_was_killed(
    roots: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = tmp_path / "parts"
    words = ["audit", *map(str, roots), "--spark", "local[2]", "--resume", str(parts), "--json"]
    # The segments of each directory take seconds at this rate.
    spindle = str(Path(sys.executable).with_name("spindle"))
    command = [spindle, *words, "--throttle", "20000"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True) as driver:

        def has_kept_a_part() -> bool:
            assert driver.poll() is None
            return any(parts.glob("*.json"))

        wait_until(has_kept_a_part, limit_s=LIMIT_S)
        os.killpg(driver.pid, 9)
    kept = [json.loads(path.read_text())["parts"] for path in parts.glob("*.json")]
    assert sum(map(len, kept)) > 0
    capsys.readouterr()
    assert run(words) == 1
    load = json.loads(capsys.readouterr().out)["findings"]
    expected = run_audit(roots, recheck_ms=0).findings
    assert [item["path"] for item in load] == [finding.path for finding in expected]
    assert list(parts.glob("*.json")) == []
