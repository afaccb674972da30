"""Libraries that a Python worker of Spark does not load for a task, because that takes too long."""

import subprocess
import sys

PROGRAM = """
import sys

from spindle.columnar.decoder import compile_kernel
from spindle.pipeline.sources import broker, segments
from spindle.pipeline.streaming import segments_reader

compile_kernel()
print("numba" in sys.modules, "pandas" in sys.modules)
"""


def test_decoding_does_not_load_pandas() -> None:
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert run.stdout.split() == ["True", "False"], run.stderr
