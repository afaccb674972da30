"""`heal`: check a cluster, and move replicas out of directories that are full or have failed."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from datetime import time as time_of_day
from pathlib import Path
from typing import Final, TypeVar

from spindle.client.admin.cluster import describe_brokers
from spindle.client.admin.partitions import list_reassignments
from spindle.client.blocking.client import WireClient
from spindle.common.text import size_text
from spindle.operations.cancellation import Cancellation, ProgressReport, undone_if_cancelled
from spindle.operations.directories import UNREADABLE
from spindle.operations.events import (
    AllWithinLimits,
    CheckFailed,
    LimitOfDayReached,
    MoveBegins,
    MovedInVain,
    OnProgress,
    OthersMove,
    OutsideHours,
    Remarks,
    SeenOffline,
    TooFull,
    ignore_progress,
)
from spindle.operations.execution.active_moves import moves_under_way
from spindle.operations.execution.execution_file import open_execution_file
from spindle.operations.execution.executor import PAUSE_S, RoundExecutor
from spindle.operations.execution.planning import DeletionWait
from spindle.operations.execution.running_plan import PlanUnderWay
from spindle.operations.heal_memory import HealMemory, open_memory
from spindle.operations.plan_settings import PlanSettings, read_cluster
from spindle.operations.repetition import repeat
from spindle.operations.state_files import locked
from spindle.operations.throttles import has_throttle
from spindle.planner.healing import HealingLimits
from spindle.planner.healing import heal as plan_healing
from spindle.planner.model import ClusterModel
from spindle.planner.plan import PlacementPlan, PlannedMove

_MS: Final = 1000
_THROTTLE_GONE_S: Final = 10.0
"""Time for a broker to learn the removal of a throttle."""
T = TypeVar("T")
DEFAULT_GRACE_MS: Final = 30 * 60_000
DEFAULT_INTERVAL_MS: Final = 5 * 60_000
HEAL_STATE: Final = Path("spindle-heal")
"""The default folder of the state of `heal`."""


@dataclass(frozen=True, slots=True)
class HoursOfDay:
    """A part of each day, in local time; it may include midnight.

    Attributes:
        begin: inclusive.
        end: exclusive.
    """

    begin: time_of_day
    end: time_of_day

    def __str__(self) -> str:
        return f"{self.begin:%H:%M} and {self.end:%H:%M}"

    def include(self, now: time_of_day) -> bool:
        """Return whether a time of the day is in these hours."""
        if self.begin < self.end:
            return self.begin <= now < self.end
        return now >= self.begin or now < self.end


@dataclass(frozen=True, slots=True)
class HealSettings:
    """The settings of `heal`.

    Attributes:
        limits: the fill that triggers moves, and the target fill.
        grace_ms: how long a directory or broker must be offline before its replicas are moved.
        interval_ms: the time between two checks; for single checks, between two calls.
        hours: the hours of the day in which moves begin, in local time; None for all.
        max_bytes_per_day: moved in 24 hours; None for no limit.
        plan: the settings of its plans; `horizon_ms` counts from now.
    """

    limits: HealingLimits = field(default_factory=HealingLimits)
    grace_ms: int = DEFAULT_GRACE_MS
    interval_ms: int = DEFAULT_INTERVAL_MS
    hours: HoursOfDay | None = None
    max_bytes_per_day: int | None = None
    plan: PlanSettings = field(default_factory=PlanSettings)


@dataclass(frozen=True, slots=True)
class HealResult:
    """The moves of a single check.

    Attributes:
        moves: the number of moves that began, or that would have begun.
        moved_bytes: their bytes.
    """

    moves: int
    moved_bytes: int


def heal(
    client: WireClient,
    *,
    settings: HealSettings | None = None,
    state: Path = HEAL_STATE,
    is_dry: bool = False,
    on_progress: OnProgress = ignore_progress,
    cancellation: Cancellation | None = None,
) -> HealResult:
    """Check a cluster once, and move replicas off full or failed directories.

    It does nothing while others move replicas. After a kill, the next call continues.

    Args:
        state: the folder that a later call needs.
        is_dry: report the moves without making them.

    Raises:
        OperationFailed: another `heal` uses the folder, the cluster refused a move, or there is no
            history.
        ApiError, ClientError: the cluster refused, or could not be asked.
        Cancelled, KeyboardInterrupt: it was cancelled; its moves and throttles are undone.

    Examples:
        >>> healing = HealSettings(HealingLimits(0.85, 0.80), max_bytes_per_day=2**40)
        >>> heal(client, settings=healing, on_progress=print)
    """
    return _healed(client, settings, state, is_dry, on_progress, cancellation, HealRun.check_once)


def keep_healing(
    client: WireClient,
    *,
    settings: HealSettings | None = None,
    state: Path = HEAL_STATE,
    is_dry: bool = False,
    on_progress: OnProgress = ignore_progress,
    cancellation: Cancellation | None = None,
) -> None:
    """Check a cluster as `heal` does, at intervals until it is cancelled.

    A failure ends only a single check, and is reported.

    Raises: OperationFailed: another `heal` uses the folder. ApiError, ClientError: the cluster
        could not be queried at the beginning. Cancelled, KeyboardInterrupt: it was cancelled; its
        moves and throttles are undone.
    """
    _healed(
        client, settings, state, is_dry, on_progress, cancellation, HealRun.check_until_cancelled
    )


def _healed(
    client: WireClient,
    settings: HealSettings | None,
    state: Path,
    is_dry: bool,
    on_progress: OnProgress,
    cancellation: Cancellation | None,
    check: Callable[["HealRun"], T],
) -> T:
    settings = settings or HealSettings()
    report = ProgressReport(on_progress)
    state.mkdir(parents=True, exist_ok=True)
    path = state / "round.json"
    sleep = cancellation.sleep if cancellation is not None else None
    with locked(path, "healing"):
        cluster_id = describe_brokers(client).cluster_id
        executor = RoundExecutor(
            client,
            open_execution_file(path, cluster_id, "heal"),
            settings.plan.limits,
            report,
            highest_fill=settings.plan.highest_fill,
            sleep=sleep,
        )
        memory = open_memory(state / "memory.json", cluster_id)
        run = HealRun(client, executor, memory, settings, report, is_dry=is_dry)
        if is_dry:
            return check(run)
        with undone_if_cancelled(run.cancel, path, report, "the next `heal`"):
            return check(run)


class HealRun:
    """Runs checks, and the moves that they require."""

    def __init__(
        self,
        client: WireClient,
        executor: RoundExecutor,
        memory: HealMemory,
        settings: HealSettings,
        report: OnProgress,
        *,
        is_dry: bool = False,
    ) -> None:
        self._client = client
        self._executor = executor
        self._memory = memory
        self._settings = settings
        self._report = report
        self._remarks = Remarks(report)
        self._is_wait_reported = False
        self._deletion_wait = DeletionWait(report, executor.sleep)
        self._is_dry = is_dry
        self._moves = 0
        self._moved_bytes = 0

    def check_until_cancelled(self) -> None:
        """Check at intervals. A failure ends only a single check, and is reported."""
        repeat(
            self.check_once,
            self._settings.interval_ms,
            lambda reason: self._report(CheckFailed(reason)),
            self._executor.sleep,
            is_from_begin=False,
        )

    def check_once(self) -> HealResult:
        """Plan and move until there is nothing to do or the daily limit is reached.

        Raises:
            OperationFailed: the cluster refused a move, or there is no history.
            ApiError, ClientError: the cluster refused, or could not be asked.
        """
        self._moves = self._moved_bytes = 0
        self._end_moves()
        before: list[str] = []
        while not self._is_cluster_busy():
            plan = self._plan()
            if not plan.rounds:
                break
            moves = _move_texts(plan)
            if moves == before:
                self._report(MovedInVain(moves))
                break
            before = moves
            if self._is_dry:
                self._report(PlanUnderWay(plan, self._settings.plan.limits, 1.0).progress())
                for text in moves:
                    self._report(MoveBegins(text))
                return HealResult(len(moves), plan.moved_bytes)
            begun = self._move(plan)
            self._end_moves()
            if not begun:
                break
        return HealResult(self._moves, self._moved_bytes)

    def _move(self, plan: PlacementPlan) -> int:
        """Execute a plan within the hours and the daily limit; return the number of moves begun.

        Raises:
            ApiError, ClientError: the cluster refused, or could not be asked.
        """
        begun = 0
        held_back: list[PlannedMove] = []

        def admits(move: PlannedMove) -> bool:
            nonlocal begun
            if not self._may_begin():
                return False
            if not self._can_afford(move):
                held_back.append(move)
                return False
            self._report(MoveBegins(_move_text(plan, move)))
            self._memory.record_moved(move.size_bytes, _now_ms())
            self._moved_bytes += move.size_bytes
            begun += 1
            return True

        self._is_wait_reported = False
        self._executor.run(plan, admits)
        if held_back:
            self._report_limit_of_day(held_back)
        self._moves += begun
        return begun

    def cancel(self) -> None:
        """Stop the moves that this run began, and remove its throttles.

        Raises:
            ApiError, ClientError: the cluster refused, or could not be asked.
        """
        self._executor.stop_moves()
        self._executor.unthrottle()
        self._executor.file.end()

    def _end_moves(self) -> None:
        """Wait for the moves of this or an earlier run, and remove their throttles."""
        file = self._executor.file
        if self._is_dry or not (file.round or file.brokers):
            return
        if file.round:
            self._executor.throttle()
            self._executor.wait()
        mine = list(file.brokers)
        self._executor.unthrottle()
        file.end()
        self._executor.report_throttles_left("the command")
        # A broker learns a change after the controller; its throttles must not count as those of
        # others.
        deadline = time.monotonic() + _THROTTLE_GONE_S
        while set(mine).intersection(self._throttled()) and time.monotonic() < deadline:
            self._executor.sleep(PAUSE_S)

    def _is_cluster_busy(self) -> bool:
        """Return whether others move replicas; throttles reveal a drain between two rounds."""
        described = self._client.describe_log_dirs()
        count = moves_under_way(list_reassignments(self._client), described).count
        throttled = [] if count else self._throttled()
        if not count and not throttled:
            return False
        self._report(OthersMove(count, throttled))
        return True

    def _throttled(self) -> list[int]:
        own = self._executor.file.brokers
        return [
            broker
            for broker in sorted(self._client.metadata(()).brokers)
            if broker not in own and has_throttle(self._client, broker)
        ]

    def _plan(self) -> PlacementPlan:
        settings = self._settings
        snapshot, forecast = read_cluster(self._client, settings.plan, self._executor.deletions)
        remarks, model = list(snapshot.remarks), snapshot.model
        at_horizon = model
        if forecast is not None:
            at_horizon = forecast.at_horizon(model)
            remarks += forecast.remarks()
        failed = self._failed(model)
        self._report_reasons(model, at_horizon)
        plan = plan_healing(model, at_horizon, failed, settings.limits, settings.plan.limits)
        if not self._is_dry and self._deletion_wait.wait_once(snapshot, plan):
            return self._plan()
        self._remarks.report([*remarks, *plan.remarks])
        return plan

    def _may_begin(self) -> bool:
        """Return whether moves may begin at this time of day; report a wait once per plan."""
        hours = self._settings.hours
        if hours is None or hours.include(datetime.now().time()):
            return True
        if not self._is_wait_reported:
            self._report(OutsideHours(str(hours)))
        self._is_wait_reported = True
        return False

    def _failed(self, model: ClusterModel) -> list[int]:
        """Return the directories that have been offline for longer than the grace period."""
        now_ms = _now_ms()
        held = {place for partition in model.partitions for place in partition.directories}
        offline = {
            number: failure_name(model, number)
            for number, directory in enumerate(model.directories)
            if not directory.is_online and number in held
        }
        self._memory.see_offline(offline.values(), now_ms, self._settings.interval_ms)
        failed = []
        for number, remembered in offline.items():
            name = failed_place(model, number)
            since_ms = self._memory.offline_ms[remembered]
            is_over = since_ms >= self._settings.grace_ms
            self._report(SeenOffline(name, since_ms, is_over))
            if is_over:
                failed.append(number)
        return failed

    def _report_reasons(self, model: ClusterModel, at_horizon: ClusterModel) -> None:
        above = self._settings.limits.trigger_fill
        count = 0
        for now, later in zip(model.directories, at_horizon.directories, strict=True):
            if later.is_online and later.capacity_bytes and later.fill > above:
                self._report(TooFull(str(later), now.fill, later.fill, above))
                count += 1
        if not count and not self._memory.offline_ms:
            self._report(AllWithinLimits(len(model.directories), above))

    def _left_today(self) -> int | None:
        """Return the bytes that may still be moved today; None for no limit."""
        limit = self._settings.max_bytes_per_day
        return None if limit is None else limit - self._memory.spent_bytes(_now_ms())

    def _can_afford(self, move: PlannedMove) -> bool:
        """Return whether today's bytes suffice for a move."""
        left = self._left_today()
        return left is None or move.size_bytes <= left

    def _report_limit_of_day(self, held_back: Sequence[PlannedMove]) -> None:
        smallest = min(move.size_bytes for move in held_back)
        limit = self._settings.max_bytes_per_day or 0
        self._report(LimitOfDayReached(self._left_today() or 0, smallest, limit))


def failed_place(model: ClusterModel, number: int) -> str:
    """Return the text of a failure: directories of a broker, or a broker that does not respond."""
    directory = model.directories[number]
    if directory.path != UNREADABLE:
        return str(directory)
    own = [model.directories[directory] for directory in model.directories_of(directory.broker_id)]
    failed = [str(disk) for disk in own if not disk.is_online and disk.path != UNREADABLE]
    return ", ".join(failed) or f"broker {directory.broker_id}"


def failure_name(model: ClusterModel, number: int) -> str:
    """Key that identifies a failure; each key has its own grace period.

    Brokers do not report the replicas of failed directories, and a broker that does not respond
    reports nothing. So the key has all failed directories, or the broker.
    """
    directory = model.directories[number]
    own = [model.directories[directory] for directory in model.directories_of(directory.broker_id)]
    if directory.path != UNREADABLE:
        return str(directory)
    if len(own) == 1:
        return f"{directory.broker_id}:(silent)"
    return f"{directory.broker_id}:{','.join(disk.path for disk in own if not disk.is_online)}"


def _move_texts(plan: PlacementPlan) -> list[str]:
    """Return the texts of all moves."""
    return [_move_text(plan, move) for planned_round in plan.rounds for move in planned_round.moves]


def _move_text(plan: PlacementPlan, move: PlannedMove) -> str:
    directories = plan.cluster.directories
    return (
        f"{plan.cluster.partitions[move.partition].name} from {directories[move.source]} to "
        f"{directories[move.target]}, {size_text(move.size_bytes)}"
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
