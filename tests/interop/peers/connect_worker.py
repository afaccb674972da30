"""Workers of Kafka Connect with connectors between files and topics.

The connectors are those of `java/connect`: Maven Central does not have Kafka's own for files.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

from waiting import wait_until

from peers.java_process import JavaProcess
from peers.java_tools import compiled_classes
from peers.ports import free_ports

LIMIT_S = 90.0
_COMMON = {
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    "offset.flush.interval.ms": "500",
    "plugin.discovery": "only_scan",
}


def write_properties(file: Path, properties: dict[str, str]) -> Path:
    """Write a property file and return its path."""
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    return file


class ConnectWorker(JavaProcess):
    """A worker in a folder of its own; it starts with the `with` block.

    Args:
        properties: of the worker, beside converters and the address of its REST server.
        connectors: property files, for a standalone worker; a distributed worker has none.
    """

    def __init__(self, folder: Path, properties: dict[str, str], *connectors: Path) -> None:
        folder.mkdir(exist_ok=True)
        (self._port,) = free_ports(1)
        mode = "Standalone" if connectors else "Distributed"
        listeners = {"listeners": f"http://127.0.0.1:{self._port}"}
        file = write_properties(
            folder / "worker.properties", {**_COMMON, **listeners, **properties}
        )
        super().__init__(
            folder / "output.txt",
            f"org.apache.kafka.connect.cli.Connect{mode}",
            str(file),
            *map(str, connectors),
            extra_path=os.fspath(compiled_classes("connect")),
        )

    def create(self, name: str, config: dict[str, str]) -> None:
        """Create a connector, when the worker has joined its group."""
        path = f"/connectors/{name}/config"
        self._wait(
            lambda: self._ask("PUT", path, config),
            lambda status, _: status in (HTTPStatus.OK, HTTPStatus.CREATED),
            name,
        )

    def wait_running(self, name: str) -> None:
        """Return when a connector and its task run."""

        def runs(status: int, answer: Any) -> bool:
            if status != HTTPStatus.OK:
                return False
            states = [answer["connector"]["state"], *(task["state"] for task in answer["tasks"])]
            return len(states) > 1 and set(states) == {"RUNNING"}

        self._wait(lambda: self._ask("GET", f"/connectors/{name}/status"), runs, name)

    @staticmethod
    def _wait(
        ask: Callable[[], tuple[int, Any]], is_right: Callable[[int, Any], bool], name: str
    ) -> None:
        answers: list[tuple[int, Any]] = []

        def is_done() -> bool:
            answers.append(ask())
            return is_right(*answers[-1])

        wait_until(
            is_done, lambda: f"connector {name}: {answers[-1]}", limit_s=LIMIT_S, pause_s=0.2
        )

    def _ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Return the status and the document of an answer; 0 and a reason without an answer."""
        connection = HTTPConnection("127.0.0.1", self._port, timeout=30)
        try:
            connection.request(
                method,
                path,
                None if body is None else json.dumps(body),
                {"Content-Type": "application/json"},
            )
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or b"null")
        except (OSError, HTTPException, ValueError) as error:  # the server is starting
            return 0, error
        finally:
            connection.close()
