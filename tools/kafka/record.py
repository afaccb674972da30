"""Record what a release of Apache Kafka, or Spindle, writes and prints in the scenarios.

The recordings lie in tests/interop/recordings, whose README explains them. Each program needs its
jars in build/ (`python tools/kafka/fetch.py`); failing disks need root and loop devices.

    .venv/bin/python tools/kafka/record.py --program kafka-4.4.0
    .venv/bin/python tools/kafka/record.py --program spindle 06-cordons
    .venv/bin/python tools/kafka/record.py --program spindle --to /tmp/recordings
"""

import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[2] / "tests"
sys.path[:0] = [str(TESTS / "interop"), str(TESTS / "helpers")]

from recordings.record import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
