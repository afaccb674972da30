"""The streaming job in examples/ passes its own test, with Spark's Kafka source from Maven."""

import os
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest
from peers import spark_venv
from peers.paths import ROOT

pytestmark = [pytest.mark.interop, pytest.mark.spark, pytest.mark.timeout(900)]

LIBRARIES = (
    "_pytest",
    "confluent_kafka",
    "iniconfig",
    "packaging",
    "pluggy",
    "py",
    "pygments",
    "pytest",
    "typing_extensions",
)
"""Installed beside Spindle in a user's project, and not with PySpark 4.2 in these tests."""


def test_the_streaming_job_passes_its_test(tmp_path: Path) -> None:
    for name in LIBRARIES:
        spec = find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        origin = Path(spec.origin)
        package = origin.parent if origin.name == "__init__.py" else origin
        (tmp_path / package.name).symlink_to(package)
        bundled = package.with_name(f"{name}.libs")
        if bundled.is_dir():
            (tmp_path / bundled.name).symlink_to(bundled)
    folder = ROOT / "examples"
    plugin = ("-p", "spindle.testing.pytest_plugin", "-p", "no:cacheprovider")
    done = subprocess.run(
        [
            str(spark_venv.python()), "-m", "pytest", "-q", "-c", os.devnull, "--rootdir",
            str(folder), *plugin, str(folder / "test_stream.py"),
        ],
        capture_output=True,
        text=True,
        env={
            **spark_venv.environment(),
            "PYTHONPATH": str(tmp_path),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTEST_ADDOPTS": "",
        },
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    assert "1 passed" in done.stdout
