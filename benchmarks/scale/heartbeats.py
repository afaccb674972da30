"""The heartbeats of many brokers over sockets of their own; a process beside the measured one.

Run: python -m benchmarks.scale.heartbeats CONTROLLER[,CONTROLLER...] BROKERS SILENT

The controllers are addresses. Each broker sends a heartbeat every 2 s to the controller that it
believes active, and asks the next one after an error. A latency counts from the time at which the
heartbeat was due, so that heartbeats which wait for one another are not hidden. After a line on
stdin the last SILENT brokers stop; at the end of stdin each answer is written as a line: seconds of
the monotonic clock at which it was due, milliseconds until the answer, error code.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Final

from benchmarks.scale.image import FIRST_BROKER
from spindle.client.connection import ClientConnection, ReceivedAnswer
from spindle.protocol.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)

INTERVAL_S: Final = 2.0
LOST: Final = -2
"""In place of an error code: the connection ended, or was refused."""
_LIMIT_S: Final = 30.0
_ALL_OFFSETS: Final = 1 << 40


class Broker:
    """One broker that sends heartbeats."""

    def __init__(self, broker_id: int, controllers: list[tuple[str, int]]) -> None:
        self.broker_id = broker_id
        self.answers: list[tuple[float, float, int]] = []
        self.is_silent = False
        self._controllers = controllers
        self._active = 0
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._connection = ClientConnection(f"broker-{broker_id}")

    async def run(self, offset_s: float) -> None:
        due_s = time.monotonic() + offset_s
        while not self.is_silent:
            await asyncio.sleep(due_s - time.monotonic())
            try:
                async with asyncio.timeout(_LIMIT_S):
                    code = await self._beat()
            except (OSError, EOFError, TimeoutError):
                code = LOST
                self._close()
            self.answers.append((due_s, 1000 * (time.monotonic() - due_s), code))
            if code:
                self._active = (self._active + 1) % len(self._controllers)
                self._close()
            due_s = max(due_s + INTERVAL_S, time.monotonic())
        self._close()

    async def _beat(self) -> int:
        if self._streams is None:
            self._streams = await asyncio.open_connection(*self._controllers[self._active])
            self._connection = ClientConnection(f"broker-{self.broker_id}")
            self._streams[1].writelines(self._connection.opening())
            self._connection.receive_frame(await self._frame())
        request = BrokerHeartbeatRequest(
            broker_id=self.broker_id,
            broker_epoch=self.broker_id,
            current_metadata_offset=_ALL_OFFSETS,
            cordoned_log_dirs=[],
        )
        _, parts = self._connection.request(request, BrokerHeartbeatResponse)
        self._streams[1].writelines(parts)
        received = self._connection.receive_frame(await self._frame())
        assert isinstance(received, ReceivedAnswer)
        answer = received.response
        assert isinstance(answer, BrokerHeartbeatResponse)
        return answer.error_code

    async def _frame(self) -> memoryview:
        assert self._streams is not None
        size = int.from_bytes(await self._streams[0].readexactly(4), "big")
        return memoryview(await self._streams[0].readexactly(size))

    def _close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def _main(controllers: list[tuple[str, int]], count: int, silent: int) -> None:
    brokers = [Broker(FIRST_BROKER + number, controllers) for number in range(count)]
    tasks = [
        asyncio.create_task(broker.run(INTERVAL_S * number / count))
        for number, broker in enumerate(brokers)
    ]
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, sys.stdin.readline):
        for broker in brokers[count - silent :]:
            broker.is_silent = True
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for broker in brokers:
        for due_s, waited_ms, code in broker.answers:
            sys.stdout.write(f"{due_s:.6f} {waited_ms:.3f} {code}\n")


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


if __name__ == "__main__":
    asyncio.run(
        _main([_address(a) for a in sys.argv[1].split(",")], int(sys.argv[2]), int(sys.argv[3]))
    )
