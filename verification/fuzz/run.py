"""A run: attackers, the canary and the watch, until the time is over or something is found."""

import asyncio
import contextlib
import os
import time
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from spindle.protocol.messages.create_topics import CreateTopicsRequest
from spindle.protocol.messages.metadata import MetadataRequest
from verification.fuzz.attack import attack
from verification.fuzz.canary import Canary
from verification.fuzz.cases import Case, CaseMaker
from verification.fuzz.hostile_writers import HostileWriters
from verification.fuzz.members import HostileMembers
from verification.fuzz.producers import HostileProducers
from verification.fuzz.target import TargetNode
from verification.fuzz.transactional_canary import TransactionalCanary
from verification.fuzz.unloaded_clock import UnloadedClock
from verification.fuzz.values import TOPICS, Known
from verification.fuzz.wire import Finding, NoAnswer, RawConnection
from verification.fuzz.workers import HostileWorkers

_CANARY_PAUSE_S: Final = 0.02
_WATCH_S: Final = 0.5
_GARDEN_S: Final = 1.0
_KEPT_CASES: Final = 64
_MAX_GROWTH_BYTES: Final = 400 * 1024 * 1024
_MAX_PEAK_BYTES: Final = 600 * 1024 * 1024
"""A batch that unpacks to 64 MiB needs at most 300 MiB while it is decoded and packed again, beside
requests of up to 100 MiB (`socket.request.max.bytes`); a leak stays."""
_SAMPLES: Final = 20


class MemoryGrowth:
    """Tells a node that keeps memory from one that needs much of it for a moment."""

    def __init__(self) -> None:
        self._last: deque[int] = deque(maxlen=_SAMPLES)

    def check(self, grown_bytes: int) -> None:
        """Check a sample of the growth since the start.

        Raises:
            Finding: the peak is too high, or the lowest of the last samples is.
        """
        self._last.append(grown_bytes)
        lowest = min(self._last) if len(self._last) == _SAMPLES else 0
        if grown_bytes > _MAX_PEAK_BYTES or lowest > _MAX_GROWTH_BYTES:
            raise Finding(
                f"the node's memory grew by {grown_bytes >> 20} MiB; the lowest growth of "
                f"{_SAMPLES} samples is {lowest >> 20} MiB"
            )


@dataclass(slots=True)
class FuzzOutcome:
    """The result of a run."""

    seed: int
    cases: int = 0
    answers: int = 0
    logins: int = 0
    """Logins of attackers that succeeded, at a secured node."""
    turns: int = 0
    grown_bytes: int = 0
    latencies_ms: list[float] = field(default_factory=list)
    """Times of the canary's requests, with the load of the machine in them."""
    finding: str | None = None
    time_limit: str | None = None
    """The limit of time that ended the run, while the machine left the node too little CPU."""
    recent: deque[Case] = field(default_factory=lambda: deque(maxlen=_KEPT_CASES))

    def quantile_ms(self, share: float) -> float:
        """Return a quantile of the canary's latencies."""
        ordered = sorted(self.latencies_ms)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


@dataclass(frozen=True, slots=True)
class FuzzPlan:
    """The work of a run. With `first_case` and `last_case` a part of a run is repeated.

    `most_latency_ms` is what a request of the canary may take without the load of the machine. The
    run continues after `seconds` until it has made `min_cases` and `min_canary_requests`, because a
    slow machine makes few of them.
    """

    host: str
    port: int
    seed: int
    seconds: float
    attackers: int = 4
    first_case: int = 0
    last_case: int | None = None
    most_latency_ms: float = 2_000.0
    min_cases: int = 0
    min_canary_requests: int = 0
    is_controller: bool = False
    """The port is a controller's: there is no canary, as elections may be what was asked for."""


class FuzzRun:
    """One run of a plan, against a node with PLAINTEXT listeners."""

    def __init__(self, plan: FuzzPlan, node: TargetNode | None) -> None:
        self.plan = plan
        self.node = node
        self.known = Known()
        self.outcome = FuzzOutcome(plan.seed)
        self._next_case = plan.first_case
        self.ends_at = time.monotonic() + plan.seconds
        pids = [os.getpid()] if node is None else [os.getpid(), node.pid]
        self.clock = UnloadedClock(pids)

    @property
    def is_over(self) -> bool:
        plan, outcome = self.plan, self.outcome
        if plan.last_case is not None and self._next_case > plan.last_case:
            return True
        return (
            time.monotonic() > self.ends_at
            and outcome.cases >= plan.min_cases
            and len(outcome.latencies_ms) >= plan.min_canary_requests
        )

    def next_case(self) -> int:
        """Return the number of the next case."""
        self._next_case += 1
        return self._next_case - 1

    async def all(self) -> None:
        """Run attackers, canaries and the watch until the time is over.

        Raises:
            Finding: something was found.
        """
        plan = self.plan
        if plan.is_controller:
            await self._controller()
            return
        gardener = await RawConnection.connect(plan.host, plan.port)
        await self._plant(gardener)
        maker = CaseMaker(plan.seed, await gardener.versions(), self.known)
        self.outcome.turns = maker.turns
        canary = Canary(await RawConnection.connect(plan.host, plan.port))
        await canary.prepare()
        self.outcome.latencies_ms = canary.latencies_ms
        transactions = TransactionalCanary(await RawConnection.connect(plan.host, plan.port))
        await transactions.prepare()
        try:
            producers = HostileProducers(plan.host, plan.port, plan.seed)
            members = HostileMembers(plan.host, plan.port, plan.seed)
            writers = HostileWriters(plan.host, plan.port, plan.seed)
            workers = HostileWorkers(plan.host, plan.port, plan.seed)
            await self.until_over(
                self.listen(canary),
                self._tend(gardener),
                members.play(lambda: self.is_over),
                producers.play(lambda: self.is_over),
                writers.play(lambda: self.is_over),
                workers.play(lambda: self.is_over),
                self.check_transactions(transactions),
                *(self._attack(maker) for _ in range(plan.attackers)),
            )
            await canary.check()
            await transactions.check()
        finally:
            canary.close()
            transactions.close()
            gardener.close()

    async def _controller(self) -> None:
        asker = await RawConnection.connect(self.plan.host, self.plan.port)
        maker = CaseMaker(self.plan.seed, await asker.versions(), self.known)
        self.outcome.turns = maker.turns
        await self.until_over(*(self._attack(maker) for _ in range(self.plan.attackers)))
        await asker.versions()
        asker.close()

    async def until_over(self, *clients: Coroutine[Any, Any, None]) -> None:
        """Run clients and the watch until the time is over.

        Raises:
            Finding: something was found.
        """
        tasks = [asyncio.ensure_future(work) for work in (*clients, self._watch())]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if self.node is not None:
            self.node.check()

    async def _attack(self, maker: CaseMaker) -> None:
        while not self.is_over:
            case = maker.make(self.next_case())
            self.outcome.recent.append(case)
            answers = await attack(self.plan.host, self.plan.port, case, self.known)
            self.outcome.answers += answers
            self.outcome.cases += 1

    async def listen(self, canary: Canary) -> None:
        """Let the canary sing, and check how long its requests take."""
        while not self.is_over:
            before = len(canary.latencies_ms)
            await canary.check()
            self.check_latency(max(canary.latencies_ms[before:]))
            await asyncio.sleep(_CANARY_PAUSE_S)

    def check_latency(self, latency_ms: float) -> None:
        """Check what a request of the canary has just taken.

        Raises:
            Finding: it took too long, and not because of the load of the machine.
        """
        unloaded_ms = self.clock.unloaded_s(latency_ms / 1000) * 1000
        if unloaded_ms > self.plan.most_latency_ms:
            raise Finding(
                f"a request of the canary took {latency_ms:.0f} ms, "
                f"{unloaded_ms:.0f} ms of them without the load of the machine"
            )

    async def check_transactions(self, canary: TransactionalCanary) -> None:
        """Let the transactional canary sing."""
        while not self.is_over:
            await canary.check()
            await asyncio.sleep(_CANARY_PAUSE_S)

    async def _watch(self) -> None:
        before = 0 if self.node is None else self.node.rss_bytes()
        growth = MemoryGrowth()
        while not self.is_over:
            self.clock.sample()
            await asyncio.sleep(_WATCH_S)
            if self.node is None:
                continue
            self.node.check()
            grown = self.node.rss_bytes() - before
            self.outcome.grown_bytes = max(self.outcome.grown_bytes, grown)
            growth.check(grown)

    async def _tend(self, gardener: RawConnection) -> None:
        """Create topics again that attackers delete."""
        while not self.is_over:
            await asyncio.sleep(_GARDEN_S)
            await self._plant(gardener)

    async def _plant(self, gardener: RawConnection) -> None:
        topic = CreateTopicsRequest.CreatableTopic
        await gardener.ask(
            CreateTopicsRequest(
                timeout_ms=10_000,
                topics=[topic(name=t, num_partitions=2, replication_factor=1) for t in TOPICS],
            )
        )
        wanted = [MetadataRequest.MetadataRequestTopic(name=name) for name in TOPICS]
        response = await gardener.ask(
            MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        )
        self.known.topic_ids = {t.name: t.topic_id for t in response.topics if not t.error_code}


async def run(plan: FuzzPlan, node: TargetNode | None) -> FuzzOutcome:
    """Run a plan against a node; without `node` its process and log are not looked at."""
    return await outcome_of(FuzzRun(plan, node))


async def outcome_of(whole: FuzzRun) -> FuzzOutcome:
    """Return the result of a run, with what was found."""
    node = whole.node
    try:
        await whole.all()
    except* Finding as findings:
        first = _first(findings)
        if isinstance(first, NoAnswer) and whole.clock.was_starved(first.waited_s):
            whole.outcome.time_limit = str(first)
        else:
            whole.outcome.finding = str(first)
        if node is not None:
            # A missing answer mostly has its reason in the log.
            with contextlib.suppress(FileNotFoundError):
                try:
                    node.check()
                except Finding as reason:
                    whole.outcome.finding = f"{first}\n{reason}"
    return whole.outcome


def _first(findings: BaseExceptionGroup[Finding]) -> BaseException:
    """Return the first exception of a group of tasks."""
    error: BaseException = findings
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def write_cases(outcome: FuzzOutcome, path: Path) -> None:
    """Write the last cases of a run, one a line: number, description, bytes in hex."""
    lines = (f"{case.number}\t{case.title}\t{case.data.hex()}\n" for case in outcome.recent)
    path.write_text("".join(lines))
