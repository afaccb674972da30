"""Run the tests that have just failed once more, alone, and name those that then pass as unstable.

The suites run thousands of tests beside each other, many with real clusters. A test that fails
there and passes alone has a race, which has to be mended, but says little about the change at hand.
Arguments: none. The failed tests are those in pytest's cache. Exit code: that of the second run;
1 if no test or more than MOST have failed, because that is no matter of races.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

MOST: Final = 3
_FAILED: Final = Path(".pytest_cache/v/cache/lastfailed")


def main() -> int:
    """Run the failed tests again; return the exit code."""
    failed = sorted(json.loads(_FAILED.read_text())) if _FAILED.exists() else []
    if not 0 < len(failed) <= MOST:
        print(f"{len(failed)} failed tests in {_FAILED}: 1 to {MOST} would be run once more")
        return 1
    print("once more, alone:", *failed, sep="\n  ", flush=True)
    code = subprocess.run([sys.executable, "-m", "pytest", "-q", *failed], check=False).returncode
    if code == 0:
        print("unstable, to be mended:", *failed, sep="\n  ")
    return code


if __name__ == "__main__":
    sys.exit(main())
