"""Reports changes of this broker to the controller: directories, in-sync replicas.

One request of a kind at a time; changes meanwhile go into the next (KIP-497, KIP-858).
"""

import asyncio
import logging
from collections.abc import Callable

from spindle.common.errors import ApiError, ErrorCode
from spindle.protocol.message import Message
from spindle.replicas.report_queues import Reports
from spindle.runtime import background
from spindle.runtime.backoff import Backoff
from spindle.serving.ports import ControllerChannel

log = logging.getLogger(__name__)


class ReportSender:
    """Sends reports until the queue is empty.

    Args:
        what: names the kind in the log.
        broker_epoch: of the present registration.
    """

    def __init__(
        self,
        what: str,
        reports: Reports,
        channel: ControllerChannel,
        broker_epoch: Callable[[], int],
        backoff: Backoff,
    ) -> None:
        self._what = what
        self._reports = reports
        self._channel = channel
        self._broker_epoch = broker_epoch
        self._backoff = backoff
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = background.run_forever(self._turn, self._what, on_failure=self._failed)

    async def stop(self) -> None:
        await background.end(self._task)

    def wake(self) -> None:
        """Start to send, because the queue has reports."""
        self._wake.set()

    async def _turn(self) -> None:
        await self._wake.wait()
        self._wake.clear()
        while self._reports.has_ready:
            await self._send()

    def _failed(self) -> None:
        """Send everything again: the controller may not have received it."""
        self._reports.requeue_in_flight()
        self._wake.set()

    async def _send(self) -> None:
        request = self._reports.next_request(self._broker_epoch())
        if request is None:
            return
        if await self._exchange(request):
            self._backoff.reset()
        else:
            # Pause: the controller would refuse the same report again at once.
            await asyncio.sleep(self._backoff.next_ms() / 1000)

    async def _exchange(self, request: Message) -> bool:
        try:
            response = await self._channel.request(request)
            if response.error_code:
                raise ApiError(ErrorCode(response.error_code))
        except ApiError as error:
            log.info("the controller did not accept %s: %s", self._what, error)
            self._reports.requeue_in_flight()
            return False
        return self._reports.answered(response)
