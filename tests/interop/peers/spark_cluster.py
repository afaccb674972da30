"""A standalone Spark cluster of real processes, a master and workers, started from PySpark's wheel.

The wheel has no scripts that start a master or a worker; `spark-class` runs their main classes.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil
import pyspark

from peers.ports import free_ports
from spindle.pipeline.spark.java import choose_java, launcher_home

START_LIMIT_S = 90.0
_LOOPBACK = "127.0.0.1"
_REGISTERED = re.compile("Successfully registered with master")


class SparkClusterFailed(RuntimeError):
    """A master or worker did not start; carries the end of its output."""


class SparkCluster:
    """A master and `workers` workers on the loopback interface, each with one executor's cores.

    `hosts` are the addresses of the workers, 127.0.0.1 for those that have none.
    `worker_environment` has further variables of the workers, which their executors inherit.
    """

    def __init__(
        self,
        folder: Path,
        workers: int = 2,
        cores: int = 1,
        memory_mib: int = 1024,
        worker_environment: Mapping[str, str] | None = None,
        hosts: Sequence[str] = (),
    ) -> None:
        self.folder = folder
        self._workers = workers
        self._cores = cores
        self._memory_mib = memory_mib
        self._hosts = dict(enumerate(hosts))
        self._environment = dict(worker_environment or {})
        (port,) = free_ports(1)
        self.master = f"spark://{_LOOPBACK}:{port}"
        self.processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> SparkCluster:
        self.folder.mkdir(parents=True, exist_ok=True)
        port = self.master.rpartition(":")[2]
        try:
            self._start("master", "master.Master", _LOOPBACK, "--port", port)
            self._wait("master", re.compile("New state: ALIVE"))
            for number in range(self._workers):
                self._start(
                    f"worker-{number}", "worker.Worker", self._hosts.get(number, _LOOPBACK),
                    "--cores", str(self._cores), "--memory", f"{self._memory_mib}m",
                    "--work-dir", str(self.folder / f"work-{number}"), self.master,
                )  # fmt: skip
            for number in range(self._workers):
                self._wait(f"worker-{number}", _REGISTERED)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Kill master, workers, their executors and the Python workers of those."""
        for process in self.processes:
            for child in [*psutil.Process(process.pid).children(recursive=True)]:
                child.kill()
            process.kill()
            process.wait()
        self.processes.clear()

    def _start(self, name: str, main_class: str, host: str, *arguments: str) -> None:
        home = launcher_home(choose_java(os.environ))
        environment = os.environ | {"JAVA_HOME": str(home), "SPARK_LOCAL_IP": host}
        command = [
            str(Path(pyspark.__file__).parent / "bin" / "spark-class"),
            f"org.apache.spark.deploy.{main_class}",
            "--host", host, "--webui-port", "0", *arguments,
        ]  # fmt: skip
        with self._log(name).open("wb") as output:
            self.processes.append(
                subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=environment | self._environment,
                    start_new_session=True,
                )
            )

    def _wait(self, name: str, sign: re.Pattern[str]) -> None:
        deadline = time.monotonic() + START_LIMIT_S
        while not sign.search(text := self._log(name).read_text(errors="replace")):
            if time.monotonic() > deadline or self.processes[-1].poll() is not None:
                raise SparkClusterFailed(f"{name}: {text[-2000:]}")
            time.sleep(0.05)

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"
