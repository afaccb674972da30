"""Measurements of Spindle and Apache Kafka, in turn within one run."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "interop"))
