"""The control channel of a node that runs for tests: sets faults and waits for conditions.

Requests come over a Unix socket and are served on threads, so that they are served while the event
loop or a disk's thread waits for a disk.
"""

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from spindle.local.control_socket import read_line, send_error, send_result
from spindle.runtime.node import Node
from spindle.testing.faults.conditions import Condition, ConditionWatch, condition_of
from spindle.testing.faults.disk_faults import DiskFaults
from spindle.testing.faults.faulty_machine import FaultyMachine
from spindle.testing.faults.network_faults import FaultyNetwork, NetworkFaults
from spindle.testing.faults.unsynced import Notes


def control_path(home: Path, node_id: int) -> str:
    """Return the path of the control socket of a node.

    Args:
        home: the folder of the cluster's supervisor.
    """
    return str(home / f"{node_id}.sock")


class NodeControl:
    """Serves the control channel of this process.

    Args:
        listening: the socket; each connection carries one request.
    """

    def __init__(
        self, listening: socket.socket, machine: FaultyMachine, network: FaultyNetwork
    ) -> None:
        self._listening = listening
        self._machine = machine
        self._network = network
        self._loop: asyncio.AbstractEventLoop | None = None
        self._node: Node | None = None
        self._is_ready = threading.Event()
        self._commands: Mapping[str, Callable[[dict[str, Any]], Any]] = {
            "set-disk": self._set_disk,
            "disk": self._disk,
            "cut-power": self._cut_power,
            "set-network": self._set_network,
        }
        threading.Thread(target=self._serve, name="control", daemon=True).start()

    def use_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Apply network faults on this event loop."""
        self._loop = loop

    def use_node(self, node: Node) -> None:
        """Wait for conditions on this node, which has started."""
        self._node = node
        self._is_ready.set()

    def _serve(self) -> None:
        while True:
            connection, _ = self._listening.accept()
            threading.Thread(
                target=self._answer, args=(connection,), name="control", daemon=True
            ).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            line = read_line(connection)
            if not line:
                return
            request = json.loads(line)
            if request["do"] == "wait":
                self._wait(connection, condition_of(request["condition"]))
                return
            try:
                result = self._commands[request["do"]](request)
            except Exception as error:  # noqa: BLE001 - the answer of a command that failed
                send_error(connection, f"{type(error).__name__}: {error}")
            else:
                send_result(connection, result)

    # -- commands

    def _set_disk(self, request: dict[str, Any]) -> None:
        self._machine.disk(request["path"]).set(DiskFaults.from_json(request["faults"]))

    def _disk(self, request: dict[str, Any]) -> dict[str, Any]:
        return self._machine.disk(request["path"]).faults.to_json()

    def _cut_power(self, request: dict[str, Any]) -> dict[str, Notes]:
        return {path: disk.cut_power() for path, disk in self._machine.disks.items()}

    def _set_network(self, request: dict[str, Any]) -> None:
        faults = NetworkFaults.from_json(request["faults"])
        loop = self._loop
        if loop is None:
            self._network.faults = faults
            return

        async def apply() -> None:
            self._network.set(faults)

        asyncio.run_coroutine_threadsafe(apply(), loop).result()

    def _wait(self, connection: socket.socket, condition: Condition) -> None:
        """Answer when the condition holds; stop waiting when the other side hangs up."""
        self._is_ready.wait()
        assert self._node is not None
        assert self._loop is not None
        node, loop, machine = self._node, self._loop, self._machine

        def answer(result: Any) -> None:
            with suppress(OSError):
                send_result(connection, result)

        watch: list[ConditionWatch] = []
        loop.call_soon_threadsafe(
            lambda: watch.append(ConditionWatch(node.publisher, machine, condition, answer))
        )
        # The other side sends nothing more; it hangs up when it has its answer, or has given up.
        connection.recv(1)
        loop.call_soon_threadsafe(lambda: watch[0].stop())
