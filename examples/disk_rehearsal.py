"""A rehearsal for operators: a broker loses a disk, and its partitions are led elsewhere.

    python examples/disk_rehearsal.py

Starts three nodes with four log directories each, writes records to a topic with three replicas,
takes one directory of node 1 away, and watches until no partition is led from it. At the end every
record is read back, and the cluster is removed. No root is needed: the directory is renamed, so
that the next file that the node writes there fails, as it would on a dead disk.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

SPINDLE = (sys.executable, "-c", "from spindle.cli.main import main; main()")
TOPIC = "rehearsal"
RECORDS = 500
LIMIT_S = 90


class Cluster:
    """A running `spindle up`, and its commands."""

    def __init__(self, folder: Path) -> None:
        size = ("--nodes", "3", "--dirs", "4", "--port", "0")
        words = ("up", *size, "--data", str(folder), "--json")
        self.process = subprocess.Popen([*SPINDLE, *words], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        for line in self.process.stdout:
            event = json.loads(line)
            if event["event"] == "ready":
                self.ready: dict[str, Any] = event
                return
        raise SystemExit("the cluster did not start")

    def run(self, *words: str, stdin: str = "") -> str:
        """Run a command of spindle and return its output."""
        where = ("-b", self.ready["bootstrap_servers"])
        command = [*SPINDLE, *words, *where]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stderr)
        return done.stdout

    def ask(self, *words: str) -> Any:
        """Run a command with --json and return its document."""
        return json.loads(self.run(*words, "--json"))

    def leaders(self) -> dict[int, int]:
        """Return the leader of each partition of the topic."""
        (topic,) = self.ask("topic", "describe", TOPIC)
        return {each["partition"]: each["leader"] for each in topic["partitions"]}

    def stop(self) -> None:
        self.process.terminate()
        self.process.communicate()


def directory_to_lose(cluster: Cluster) -> tuple[Path, set[int]]:
    """Return a directory of node 1 from which it leads partitions, and those partitions.

    The first directory holds the metadata log too, and a node that loses it ends.
    """
    led = {partition for partition, leader in cluster.leaders().items() if leader == 1}
    brokers = cluster.ask("log-dirs", "--broker-list", "1")["brokers"]
    metadata_directory = cluster.ready["nodes"][0]["log_dirs"][0]
    for directory in brokers[0]["logDirs"]:
        names = {each["partition"] for each in directory["partitions"]}
        here = {partition for partition in led if f"{TOPIC}-{partition}" in names}
        if here and directory["logDir"] != metadata_directory:
            return Path(directory["logDir"]), here
    raise SystemExit("node 1 leads nothing outside its first directory")


def wait_until_lost(cluster: Cluster, directory: Path, partitions: set[int]) -> None:
    """Wait until the directory is offline and none of its partitions is led by node 1."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        status = cluster.ask("status")
        leaders = cluster.leaders()
        if (
            str(directory) in status["brokers"][0]["offlineDirectories"]
            and not status["partitionsWithoutLeader"]
            and all(leaders[partition] != 1 for partition in partitions)
        ):
            return
        time.sleep(0.5)
    raise SystemExit(f"after {LIMIT_S} s the cluster has not noticed the loss of {directory}")


def main() -> None:
    """Run the rehearsal on a cluster that is removed at the end."""
    with tempfile.TemporaryDirectory(prefix="spindle-rehearsal-") as folder:
        cluster = Cluster(Path(folder))
        try:
            safe = ("-r", "3", "-c", "min.insync.replicas=2")
            cluster.run("topic", "create", TOPIC, "-p", "12", *safe)
            # Keys spread the records over the partitions.
            lines = "".join(f"key-{number}\t{number}\n" for number in range(RECORDS))
            cluster.run("produce", "--topic", TOPIC, "--property", "parse.key=true", stdin=lines)
            directory, partitions = directory_to_lose(cluster)
            print(f"node 1 leads {sorted(partitions)} from {directory}")
            directory.rename(directory.with_name("taken-away"))
            started = time.monotonic()
            wait_until_lost(cluster, directory, partitions)
            leaders = cluster.leaders()
            print(f"after {time.monotonic() - started:.1f} s the directory is offline")
            print(f"leaders now: { {p: leaders[p] for p in sorted(partitions)} }")
            words = ("--topic", TOPIC, "--from-beginning", "--max-messages", str(RECORDS))
            read = cluster.run("consume", *words, "--timeout-ms", "30000").split()
            print(f"{len(set(read))} of {RECORDS} records are there")
            print(cluster.run("log-dirs"), end="")
        finally:
            cluster.stop()


if __name__ == "__main__":
    main()
