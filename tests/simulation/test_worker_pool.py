"""The processes in which a hunt runs its seeds."""

import subprocess
import sys

_HUNT = """
import time
from verification.simulation.pool import worker_pool
if __name__ == "__main__":
    with worker_pool() as pool:
        print(pool.submit(abs, -7).result(), flush=True)
        pool.submit(time.sleep, 600).result()
"""


def test_workers_end_with_a_parent_that_is_killed() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _HUNT], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as hunt:
        assert hunt.stdout is not None
        assert hunt.stdout.readline() == b"7\n"
        hunt.kill()
        # The workers have the same output: it ends with the last of them.
        hunt.communicate(timeout=30)
