"""Measurements of Spindle and Apache Kafka, in turn within one run."""

import sys
from pathlib import Path

_TESTS = Path(__file__).resolve().parents[1] / "tests"
sys.path[:0] = [str(_TESTS / "interop"), str(_TESTS / "helpers")]
