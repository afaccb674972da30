"""Run the modules of the tests that have just failed once more, alone, and name these tests.

The suites run thousands of tests beside each other, many with real clusters. A test that fails
there and passes alone has a race, which has to be mended, but says little about the change at hand.
Whole modules are run, because the tests of some modules play one scenario, in their order.
Arguments: none. The failed tests are those in pytest's cache. Exit code: that of the second run;
1 if no test has failed, or tests in more than MOST modules, because that is no matter of races.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

MAX_MODULES: Final = 3
_FAILED: Final = Path(".pytest_cache/v/cache/lastfailed")


def main() -> int:
    """Run the modules of the failed tests again; return the exit code."""
    failed = sorted(json.loads(_FAILED.read_text())) if _FAILED.exists() else []
    modules = sorted({name.partition("::")[0] for name in failed})
    if not 0 < len(modules) <= MAX_MODULES:
        print(
            f"{len(failed)} failed tests in {len(modules)} modules, by {_FAILED}:",
            *failed,
            sep="\n  ",
        )
        print(f"1 to {MAX_MODULES} modules would be run once more")
        return 1
    print("failed:", *failed, sep="\n  ")
    print("once more, alone:", *modules, sep="\n  ", flush=True)
    code = subprocess.run([sys.executable, "-m", "pytest", "-q", *modules], check=False).returncode
    if code == 0:
        print("unstable, to be mended:", *failed, sep="\n  ")
    return code


if __name__ == "__main__":
    sys.exit(main())
