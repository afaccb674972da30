"""Make example pages of `spindle plan --html` and `spindle audit --html` from a real cluster.

`python -m documents.example_pages` (part of `make docs-recording`) starts four brokers, fills them,
plans the drain of broker 2, changes a bit of a segment, and audits the log directories.
"""

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from documents.recording import TARGET, spindle
from spindle.testing import Cluster

PLAN: Final = TARGET.with_name("plan.html")
AUDIT: Final = TARGET.with_name("audit.html")
BROKERS: Final = 4
HAS_FINDINGS: Final = 1


def run(cluster: Cluster, *words: str, expected: int = 0) -> None:
    """Run a command of `spindle` against the cluster."""
    environment = {**os.environ, "SPINDLE_BOOTSTRAP": cluster.bootstrap_servers}
    done = subprocess.run(
        spindle(*words), env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != expected:
        raise SystemExit(done.stdout + done.stderr)


def draw(cluster: Cluster) -> None:
    """Write the two pages."""
    cluster.create_topic("orders", partitions=12, configs={"min.insync.replicas": 1})
    load = ["--num-records", "60000", "--record-size", "1000", "--throughput", "-1"]
    run(cluster, "kafka", "producer-perf-test", "--topic", "orders", *load)
    cluster.wait_until_in_sync()
    run(cluster, "plan", "drain", "2", "--capacity", "200MiB", "--html", str(PLAN))
    leader = cluster.wait_for_leader("orders", 0)
    disk = cluster.broker(leader).disk_of("orders", 0)
    disk.flip("orders-0/00000000000000000000.log", 1_000_000)
    nodes = [cluster.broker(number) for number in range(1, BROKERS + 1)]
    for node in nodes:
        node.kill()
    paths = [str(disk.path) for node in nodes for disk in node.disks]
    run(cluster, "audit", *paths, "--html", str(AUDIT), expected=HAS_FINDINGS)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="spindle-") as folder:
        with Cluster(brokers=BROKERS, directories=3, folder=Path(folder) / "c") as cluster:
            draw(cluster)
        for page in (PLAN, AUDIT):
            page.write_text(page.read_text().replace(f"{folder}/c/", "/var/spindle/"))
            print(f"{page.name}: {page.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
