"""One poll of the cluster for all open pages, on a thread of its own."""

import asyncio
import math
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final

from spindle.cli.disks.broker_poll import WAIT_MS, Survey
from spindle.cli.disks.rates import BrokerRates, DiskRate, MoveRate
from spindle.cli.status.cluster_status import Status, take_status
from spindle.cli.tools.failures import FAILURES, failure
from spindle.client.admin.refusals import failure_text
from spindle.client.blocking.client import WireClient
from spindle.client.blocking.fan_out import ask_every_broker, log_dirs_of
from spindle.client.disks import DiskView
from spindle.common.text import span_text
from spindle.console.disk_history import DiskHistory, DiskSample
from spindle.console.snapshot import ConsoleSnapshot, MoveId
from spindle.operations.directories import DirectoryKey
from spindle.planner.forecast.time_to_full import Filling, TimeToFull

INTERVAL_S: Final = 5.0
_STOP_S: Final = 2.0


class SnapshotSource:
    """The last snapshot, the history, and the pages that wait for the next snapshot.

    Attributes:
        error: why the last poll failed; None after a success. The snapshot before stays.
        history: of the directories.
        is_closed: the console ends, and so does each event stream.
    """

    def __init__(self) -> None:
        self.error: str | None = None
        self.history = DiskHistory()
        self._snapshot: ConsoleSnapshot | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed: asyncio.Event | None = None
        self.number = 0
        self.is_closed = False

    @property
    def snapshot(self) -> ConsoleSnapshot | None:
        """The last snapshot; None before the first one."""
        return self._snapshot

    def publish(self, snapshot: ConsoleSnapshot | None, error: str | None = None) -> None:
        """Replace the snapshot and wake the pages; may be called on any thread.

        A poll with the content of the one before wakes no page.

        Args:
            snapshot: None keeps the one before.
        """
        is_same = (snapshot is None or _is_same(self._snapshot, snapshot)) and error == self.error
        self._snapshot, self.error = snapshot or self._snapshot, error
        if is_same:
            return
        self.number += 1
        self._wake_pages()

    def close(self) -> None:
        """Let every waiting page end; may be called on any thread."""
        self.is_closed = True
        self._wake_pages()

    async def wait_after(self, number: int, timeout_s: float) -> bool:
        """Wait for a snapshot after this number; return False at the end of the time."""
        self._loop = asyncio.get_running_loop()
        if self._changed is None:
            self._changed = asyncio.Event()
        if self.number != number or self.is_closed:
            return True
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True

    def _wake_pages(self) -> None:
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = asyncio.Event()


def _is_same(before: ConsoleSnapshot | None, now: ConsoleSnapshot) -> bool:
    """Return whether two snapshots show the same, apart from their times."""
    return before is not None and (
        (before.log_dirs, before.rates, before.move_rates)
        == (now.log_dirs, now.rates, now.move_rates)
        and _shown(before.forecasts) == _shown(now.forecasts)
        and _without_clocks(before.status) == _without_clocks(now.status)
    )


def _shown(forecasts: Mapping[DirectoryKey, TimeToFull]) -> dict[DirectoryKey, tuple[Filling, str]]:
    """Return forecasts as texts: their numbers change with each sample."""
    return {
        key: (f.filling, "" if f.expected_s is None else span_text(f.expected_s))
        for key, f in forecasts.items()
    }


def _without_clocks(status: Status) -> tuple[object, ...]:
    quorum = status.quorum if isinstance(status.quorum, str) else status.quorum.leader_id
    disks = [
        (r.node, r.error, r.disks.disks if r.disks else None, r.disks.moves if r.disks else None)
        for r in status.reports
    ]
    return (status.cluster, quorum, status.view, disks, status.reassigned)


class ClusterPoll:
    """Polls a cluster every few seconds and publishes what it finds.

    Args:
        client: knows the bootstrap servers; it is used by this poll alone.
    """

    def __init__(
        self,
        client: WireClient,
        source: SnapshotSource,
        interval_s: float = INTERVAL_S,
        clock_s: Callable[[], float] = time.time,
    ) -> None:
        self._client = WireClient(client.settings.within(WAIT_MS))
        self._source = source
        self._interval_s = interval_s
        self._clock_s = clock_s
        self._rates: dict[int, BrokerRates] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cluster-poll", daemon=True)

    def start(self) -> None:
        """Begin to poll."""
        self._thread.start()

    def stop(self) -> None:
        """End the poll; an open request ends with its time limit."""
        self._stopped.set()
        self._thread.join(_STOP_S)

    def _run(self) -> None:
        with self._client, Survey(self._client) as survey:
            while not self._stopped.is_set():
                try:
                    self._source.publish(self.take(survey))
                except FAILURES as error:
                    self._source.publish(None, failure(error).plainly)
                self._stopped.wait(self._interval_s)

    def take(self, survey: Survey) -> ConsoleSnapshot:
        """Query the cluster, and add its directories to the history.

        Raises:
            ApiError, ClientError: its brokers and partitions could not be listed.
        """
        status = take_status(self._client, survey)
        log_dirs = {
            broker: failure_text(views) if isinstance(views, Exception) else views
            for broker, views in ask_every_broker(
                self._client, status.cluster.nodes, log_dirs_of, WAIT_MS
            ).items()
        }
        now_s = self._clock_s()
        rates, move_rates = self._rates_of(status)
        history = self._source.history
        forecasts = {}
        for report in status.reports:
            for disk in report.disks.disks if report.disks is not None else ():
                key = (report.node.node_id, disk.path)
                if disk.failure is None:
                    history.add(key, _sample(disk, rates.get(key), now_s))
                    forecasts[key] = history.forecast(key, disk.usable_bytes)
        return ConsoleSnapshot(int(now_s * 1000), status, log_dirs, rates, move_rates, forecasts)

    def _rates_of(
        self, status: Status
    ) -> tuple[dict[DirectoryKey, DiskRate], dict[MoveId, MoveRate]]:
        rates: dict[DirectoryKey, DiskRate] = {}
        moves: dict[MoveId, MoveRate] = {}
        for report in status.reports:
            if report.disks is None:
                continue
            broker = report.node.node_id
            disk_rates, move_rates = self._rates.setdefault(broker, BrokerRates()).add(report.disks)
            rates |= {(broker, path): rate for path, rate in disk_rates.items()}
            moves |= {(broker, *key): rate for key, rate in move_rates.items()}
        return rates, moves


def _sample(disk: DiskView, rate: DiskRate | None, now_s: float) -> DiskSample:
    used = float(disk.used_bytes) if disk.used_bytes >= 0 else math.nan
    if rate is None:
        return DiskSample(now_s, used, math.nan, math.nan, math.nan)
    p99_ms = rate.every.p99_ms
    return DiskSample(
        now_s,
        used,
        rate.reads.bytes_per_second,
        rate.writes.bytes_per_second,
        math.nan if p99_ms is None else p99_ms,
    )
