"""Looks at a cluster, and moves replicas out of what is too full, fills up, or has failed."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from spindle.cli.durations import span_text
from spindle.cli.execution.active_moves import moves_under_way
from spindle.cli.execution.executor import PAUSE_S, RoundExecutor
from spindle.cli.execution.planning import DeletionWait
from spindle.cli.execution.progress_events import ProgressEvent, Remarks, Reporter
from spindle.cli.execution.running_plan import PlanUnderWay
from spindle.cli.heal.heal_state import HealMemory
from spindle.cli.heal.time_window import HoursOfDay
from spindle.cli.plan.snapshot import UNREADABLE, read_snapshot
from spindle.cli.sampling.plan_forecast import look_ahead
from spindle.cli.tools.reassignment_throttles import has_throttle
from spindle.client.admin.partitions import list_reassignments
from spindle.client.blocking.client import WireClient
from spindle.common.sizes import size_text
from spindle.common.text import count_noun
from spindle.planner.healing import HealingLimits, heal
from spindle.planner.limits import PlanLimits
from spindle.planner.model import ClusterModel
from spindle.planner.plan import PlacementPlan, PlannedMove

_MS: Final = 1000
_THROTTLE_GONE_S: Final = 10.0
"""Time in which a broker hears that a throttle was removed."""


@dataclass(frozen=True, slots=True)
class HealSettings:
    """The options of a healing.

    Attributes:
        history: the folder of a history; None to look at the present fills only.
        horizon_ms: how far ahead fills are judged, with a history.
        grace_ms: the time for which a directory must be offline before it is emptied.
        interval_ms: the time between two looks.
        hours: the hours of the day in which moves begin; None for all.
        most_bytes_per_day: moved in 24 hours; None for no limit.
        capacity_bytes: of each directory; None to believe the brokers.
        is_dry: say what would move, and move nothing.
    """

    healing: HealingLimits
    limits: PlanLimits
    history: Path | None
    horizon_ms: int
    grace_ms: int
    interval_ms: int
    hours: HoursOfDay | None
    most_bytes_per_day: int | None
    capacity_bytes: int | None
    is_dry: bool


class HealRun:
    """Looks and acts, as often as it is called."""

    def __init__(
        self,
        client: WireClient,
        executor: RoundExecutor,
        memory: HealMemory,
        settings: HealSettings,
        report: Reporter,
    ) -> None:
        self._client = client
        self._executor = executor
        self._memory = memory
        self._settings = settings
        self._report = report
        self._remarks = Remarks(report)
        self._is_wait_reported = False
        self._deletion_wait = DeletionWait(report)

    def check_once(self) -> None:
        """Plan and move until there is nothing to do or no bytes are left today.

        Raises:
            CommandFailed: the cluster refused a move, or there is no history.
            ApiError, ClientError: the cluster refused, or could not be asked.
        """
        self._end_moves()
        before: list[str] = []
        while not self._is_cluster_busy():
            plan = self._plan()
            if not plan.rounds:
                return
            moves = _move_texts(plan)
            if moves == before:
                text = "the last round changed nothing; retrying at the next check"
                self._report(ProgressEvent("inVain", text, {"moves": moves}))
                return
            before = moves
            if self._settings.is_dry:
                self._report(PlanUnderWay(plan, self._settings.limits, 1.0).progress())
                for text in moves:
                    self._report(ProgressEvent("move", f"  {text}", {"move": text}))
                return
            begun = self._move(plan)
            self._end_moves()
            if not begun:
                return

    def _move(self, plan: PlacementPlan) -> int:
        """Carry out a plan within the hours and the bytes of the day; return how many moves began.

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
            text = _move_text(plan, move)
            self._report(ProgressEvent("move", f"  {text}", {"move": text}))
            self._memory.record_moved(move.size_bytes, _now_ms())
            begun += 1
            return True

        self._is_wait_reported = False
        self._executor.run(plan, admits)
        if held_back:
            self._tell_spent(held_back)
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
        if self._settings.is_dry or not (file.round or file.brokers):
            return
        if file.round:
            self._executor.throttle()
            self._executor.wait()
        mine = list(file.brokers)
        self._executor.unthrottle()
        file.end()
        self._executor.tell_throttles("the command")
        # A broker hears of a change after the controller, and its throttles must not seem foreign.
        deadline = time.monotonic() + _THROTTLE_GONE_S
        while set(mine).intersection(self._throttled()) and time.monotonic() < deadline:
            time.sleep(PAUSE_S)

    def _is_cluster_busy(self) -> bool:
        """Return whether others move replicas; throttles show a drain between two rounds."""
        described = self._client.describe_log_dirs()
        count = moves_under_way(list_reassignments(self._client), described).count
        throttled = [] if count else self._throttled()
        text = ""
        if count:
            text = f"another reassignment of {count_noun(count, 'replica')} is running; waiting"
        elif throttled:
            names = ", ".join(map(str, throttled))
            text = (
                f"broker {names} has throttles of another drain, reassignment or healing: nothing "
                "to do before they are removed"
            )
        if text:
            self._report(ProgressEvent("occupied", text, {"moves": count, "throttled": throttled}))
        return bool(text)

    def _throttled(self) -> list[int]:
        own = self._executor.file.brokers
        return [
            broker
            for broker in sorted(self._client.metadata(()).brokers)
            if broker not in own and has_throttle(self._client, broker)
        ]

    def _plan(self) -> PlacementPlan:
        settings, own = self._settings, self._executor.deletions
        snapshot = read_snapshot(self._client, settings.capacity_bytes, own=own)
        remarks = list(snapshot.remarks)
        model = snapshot.model
        ahead = model
        forecast = look_ahead(
            settings.history, settings.horizon_ms, snapshot, settings.capacity_bytes
        )
        if forecast is not None:
            ahead = forecast.at_horizon(model)
            remarks += forecast.remarks()
        failed = self._failed(model)
        self._report_reasons(model, ahead)
        plan = heal(model, ahead, failed, settings.healing, settings.limits)
        if not settings.is_dry and self._deletion_wait.wait_once(snapshot, plan):
            return self._plan()
        self._remarks.report([*remarks, *plan.remarks])
        return plan

    def _may_begin(self) -> bool:
        """Return whether moves may begin at this time of day; report a wait once for each plan."""
        hours = self._settings.hours
        if hours is None or hours.include(datetime.now().time()):
            return True
        if not self._is_wait_reported:
            text = f"the moves wait: they start only between {hours}"
            self._report(ProgressEvent("outsideHours", text, {"between": str(hours)}))
        self._is_wait_reported = True
        return False

    def _failed(self, model: ClusterModel) -> list[int]:
        """Return the directories that have been offline for longer than the grace."""
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
            end = "its replicas are made elsewhere" if is_over else "waiting for its return"
            text = f"{name} was seen offline for {span_text(since_ms / _MS)}: {end}"
            facts = {"directory": name, "offlineMs": since_ms, "isEmptied": is_over}
            self._report(ProgressEvent("offline", text, facts))
            if is_over:
                failed.append(number)
        return failed

    def _report_reasons(self, model: ClusterModel, ahead: ClusterModel) -> None:
        above = self._settings.healing.above_fill
        count = 0
        for now, later in zip(model.directories, ahead.directories, strict=True):
            if later.is_online and later.capacity_bytes and later.fill > above:
                when = "" if now.fill > above else " at the horizon"
                text = f"{later} is at {now.fill:.1%}"
                text += f", and {later.fill:.1%} at the horizon" if when else ""
                text += f": above {above:.0%}"
                facts = {"directory": str(later), "fill": now.fill, "fillAhead": later.fill}
                self._report(ProgressEvent("tooFull", text, facts))
                count += 1
        if not count and not self._memory.offline_ms:
            text = f"all directories are below {above:.0%}"
            self._report(ProgressEvent("fine", text, {"directories": len(model.directories)}))

    def _can_afford(self, move: PlannedMove) -> bool:
        """Return whether today's bytes suffice for a move."""
        most = self._settings.most_bytes_per_day
        return most is None or move.size_bytes <= most - self._memory.spent_bytes(_now_ms())

    def _tell_spent(self, held_back: Sequence[PlannedMove]) -> None:
        most = self._settings.most_bytes_per_day or 0
        left = most - self._memory.spent_bytes(_now_ms())
        smallest = min(move.size_bytes for move in held_back)
        text = (
            f"{size_text(max(0, left))} of {size_text(most)} are left for today, and the smallest "
            f"move has {size_text(smallest)}"
        )
        self._report(ProgressEvent("spent", text, {"leftBytes": left, "smallestBytes": smallest}))


def failed_place(model: ClusterModel, number: int) -> str:
    """Return what has failed, for people: directories of a broker, or the broker that is silent."""
    directory = model.directories[number]
    if directory.path != UNREADABLE:
        return str(directory)
    own = [model.directories[directory] for directory in model.directories_of(directory.broker_id)]
    failed = [str(disk) for disk in own if not disk.is_online and disk.path != UNREADABLE]
    return ", ".join(failed) or f"broker {directory.broker_id}"


def failure_name(model: ClusterModel, number: int) -> str:
    """Key that identifies a failure; each key has its own grace period.

    No broker shows which replicas its failed directories had, and a broker that does not answer
    shows none. So the name has all failed directories, or says that the broker is silent.
    """
    directory = model.directories[number]
    own = [model.directories[directory] for directory in model.directories_of(directory.broker_id)]
    if directory.path != UNREADABLE:
        return str(directory)
    if len(own) == 1:
        return f"{directory.broker_id}:(silent)"
    return f"{directory.broker_id}:{','.join(disk.path for disk in own if not disk.is_online)}"


def _move_texts(plan: PlacementPlan) -> list[str]:
    """Return all moves for people."""
    return [_move_text(plan, move) for planned_round in plan.rounds for move in planned_round.moves]


def _move_text(plan: PlacementPlan, move: PlannedMove) -> str:
    directories = plan.cluster.directories
    return (
        f"{plan.cluster.partitions[move.partition].name} from {directories[move.source]} to "
        f"{directories[move.target]}, {size_text(move.size_bytes)}"
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
