"""The guide to operations from Python: its examples work as they are printed, on a real node."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from spindle import operations
from spindle.testing import Cluster

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "operations-from-python.md"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(directories=3) as cluster:
        cluster.create_topic("guided", partitions=6)
        yield cluster


def test_the_examples_work_in_their_order(
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    code = "\n".join(re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.M | re.S))
    with operations.connect(cluster.bootstrap_servers) as client:
        path = max(view.path for view in client.describe_log_dirs()[1])
    code = code.replace("127.0.0.1:9092", cluster.bootstrap_servers)
    code = code.replace('2, "/disk3"', f"1, {path!r}")
    # The directories share a file system, which may be nearly full.
    code = code.replace(
        "PlanSettings(PlanLimits", "PlanSettings(capacity_bytes=2**30, limits=PlanLimits"
    )
    values: dict[str, object] = {}
    exec(code + "\ntimer.cancel()\nclient.close()", values)
    printed = capsys.readouterr().out
    assert f"1:{path} has no replicas and is cordoned" in printed
    assert "the fills are 0.0 points apart" in printed
    assert "too few samples (1 of 6)" in printed
    assert {path.name for path in tmp_path.iterdir()} == {"sizes", "spindle-heal"}


def test_every_public_name_of_the_package_can_be_imported() -> None:
    for name in operations.__all__:
        assert getattr(operations, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'unknown'"):
        _ = operations.unknown
