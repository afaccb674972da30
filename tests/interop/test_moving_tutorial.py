"""Every block of the tutorial about moving from Spark's kafka source runs, and no order is lost."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from peers import spark_venv
from peers.clients import create
from peers.node import KafkaNode, Node
from peers.paths import ROOT

pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize("kind", ["candidate", "kafka"])
def test_the_tutorial_copies_every_large_order_once(
    kind: str, tmp_path: Path, candidate_class: type[Node]
) -> None:
    node = (candidate_class if kind == "candidate" else KafkaNode)(tmp_path / "node")
    try:
        with node:
            for topic in ("orders", "large-orders"):
                create(node, topic, 2)
            answer = run_document(node, tmp_path)
    finally:
        node.remove()
    assert answer["orders"] == list(range(len(answer["orders"])))
    assert len(answer["orders"]) == 8 * 60
    # Coins are 1 to 60 in each group of 60 orders, and the job copies those with 50 and more.
    assert answer["large-orders"] == [order for order in answer["orders"] if order % 60 >= 49]


def run_document(node: Node, folder: Path) -> dict[str, list[int]]:
    plan = {
        "document": str(ROOT / "docs" / "guide" / "moving-from-the-kafka-source.md"),
        "replacements": {"127.0.0.1:9092": node.bootstrap, "/data/": f"{folder}/"},
        "bootstrap": node.bootstrap,
        "topics": ["orders", "large-orders"],
    }
    done = subprocess.run(
        [str(spark_venv.python()), str(Path(__file__).with_name("spark_document.py"))],
        input=json.dumps(plan),
        capture_output=True,
        text=True,
        env=spark_venv.environment(),
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answer: dict[str, list[int]] = json.loads(done.stdout.splitlines()[-1])
    return answer
