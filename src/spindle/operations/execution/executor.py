"""Moves the replicas of a plan, under throttles that are removed afterwards."""

import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Final

from spindle.client.admin.partitions import (
    alter_reassignments,
    list_reassignments,
    move_replicas,
)
from spindle.client.admin.refusals import refusal_text
from spindle.client.blocking.client import WireClient
from spindle.client.errors import BrokerNotRunning, ClientError
from spindle.client.log_dirs import LogDirView
from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicPartition
from spindle.common.text import count_noun, join_first, span_text
from spindle.operations.cancellation import Sleep
from spindle.operations.deletions import OwnDeletions, deleted_bytes_of
from spindle.operations.errors import OperationFailed
from spindle.operations.events import (
    GivenUp,
    MoveRefused,
    Moving,
    NotStopped,
    OnProgress,
    PlansAgain,
    ThrottlesLeft,
    WentOffline,
)
from spindle.operations.execution.active_moves import ActiveMoves, StallDetector, moves_under_way
from spindle.operations.execution.disk_full_guard import overfilling
from spindle.operations.execution.execution_file import ExecutionFile
from spindle.operations.execution.running_plan import PlanUnderWay
from spindle.operations.execution.throttle_backoff import ThrottleBackoff, lagging_partitions
from spindle.operations.reassignment import (
    Plan,
    Replica,
    ReplicaPlaces,
    current_replicas,
    parse_plan_json,
    places_of,
    plan_json,
)
from spindle.operations.throttles import (
    BETWEEN_BROKERS,
    BETWEEN_DIRECTORIES,
    add_entries,
    entries_of,
    has_throttle,
    remove_entries,
    remove_throttles,
    throttle_brokers,
    wanted_entries,
    with_entries,
    without_entries,
)
from spindle.planner.limits import PlanLimits
from spindle.planner.model import DirectoryModel
from spindle.planner.plan import PlacementPlan, PlannedMove

PAUSE_S: Final = 0.5
"""Time between two checks of moves."""
BROKER_GONE_S: Final = 30.0
"""Time after which a copy from or to a stopped broker is cancelled."""

STUCK_S: Final = 600.0
"""Cancel a move after this time without progress."""
CHECK_S: Final = 5.0
"""Time between two checks of throttles."""
UNCORDONED_S: Final = 3.0
"""How long a broker may still reject replicas after an uncordon."""
_MAX_NAMED: Final = 5
_HAS_ENDED: Final = (
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
"""The errors of cancelling a move that has just ended."""

WhileUncordoned = Callable[[Callable[[], object]], None]
"""Calls a function while the cordons of an execution are removed."""


class DirectoryFailures:
    """Tracks the directories that go offline after the first check, and those that come back."""

    def __init__(self) -> None:
        self._before: set[tuple[int, str]] | None = None
        self._offline: set[tuple[int, str]] = set()

    def see(self, offline: Mapping[int, Collection[str]], described: Collection[int]) -> list[str]:
        """Record the offline directories; return the new ones as `BROKER:DIR`.

        Args:
            offline: the paths of failed directories, by broker.
            described: the brokers that have reported their directories. Directories of a broker
                that does not respond stay offline.
        """
        failed = {(broker, path) for broker, paths in offline.items() for path in paths}
        if self._before is None:
            self._before = self._offline = failed
        new = failed - self._offline
        self._offline = failed | {place for place in self._offline if place[0] not in described}
        self._before &= self._offline
        return _names(new)

    def still_offline(self) -> list[str]:
        """Return the directories that went offline after the first check and are still offline."""
        return _names(self._offline - (self._before or set()))


def _names(directories: Collection[tuple[int, str]]) -> list[str]:
    return [f"{broker}:{path}" for broker, path in sorted(directories)]


def all_moves(_move: PlannedMove) -> bool:
    """Admit every move."""
    return True


def without_cordons(_stop: Callable[[], object]) -> None:
    """Do nothing, because the execution has no cordons."""


class RoundExecutor:
    """Executes plans one after the other; its file always has the changes to undo.

    Attributes:
        refused: the moves of the last plan that the cluster refused, with the reasons.
        failures: the directories that have gone offline since the first wait.
        sleep: waits for a time; may raise `Cancelled`.
        deletions: replicas that moved away from a directory, and may still use its space.

    Args:
        limits: the throttle is for each broker: into it, out of it, and between directories.
        highest_fill: copies into a directory are cancelled before its file system is fuller.
        while_uncordoned: removes the cordons of this execution, and sets them again.
        sleep: waits between two checks; may raise `Cancelled`.
    """

    def __init__(
        self,
        client: WireClient,
        file: ExecutionFile,
        limits: PlanLimits,
        report: OnProgress,
        *,
        highest_fill: float = 1.0,
        while_uncordoned: WhileUncordoned = without_cordons,
        sleep: Sleep | None = None,
    ) -> None:
        self.client = client
        self.file = file
        self.report = report
        self.refused: list[str] = []
        self.failures = DirectoryFailures()
        self.deletions = OwnDeletions([tuple(items) for items in file.deleted])
        self._limits = limits
        self._backoff = ThrottleBackoff(limits.throttle_bytes_per_second)
        self._highest_fill = highest_fill
        self._while_uncordoned = while_uncordoned
        self.sleep = sleep or time.sleep
        self._throttled: set[int] = set()
        self._shown_s = 0.0
        self._given_up: set[Replica] = set()

    def run(self, plan: PlacementPlan, admits: Callable[[PlannedMove], bool] = all_moves) -> None:
        """Execute a plan: begin each move as soon as its limits allow it, and wait for all.

        Moves of partitions that have changed since the plan was made are left out. A move that the
        cluster refuses is reported, and kept in `refused`. If a directory or a broker goes offline
        or comes back, no further move begins: another plan is needed.

        Args:
            admits: returns whether a move may begin; others are left out of the plan.

        Raises:
            OperationFailed: a move can neither complete nor be cancelled.
            ApiError, ClientError: the cluster refused, or could not be asked.
        """
        self.refused = []
        self._given_up = set()
        self._shown_s = time.monotonic() - CHECK_S
        self._watch(PlanUnderWay(plan, self._limits, self._highest_fill), admits)

    def wait(self) -> None:
        """Wait until no replica of the cluster moves.

        Moves of this execution are cancelled if they cannot complete, make no progress, or fill
        their directory. A broker that comes back, or whose throttle another execution removes, gets
        the throttle of this run. Directories that fail meanwhile are reported.

        Raises:
            OperationFailed: a move can neither complete nor be cancelled, or moves of others make
                no progress.
            ApiError, ClientError: the cluster refused, or could not be asked.
        """
        self._watch(None, all_moves)

    def _watch(self, under_way: PlanUnderWay | None, admits: Callable[[PlannedMove], bool]) -> None:
        standstill = StallDetector(STUCK_S)
        began = checked = shown = time.monotonic()
        shown_count = 0
        last_seen: dict[int, float] = {}
        while True:
            reassigned = list_reassignments(self.client)
            described = self.client.describe_log_dirs()
            alive = self.client.metadata(()).brokers
            now = moves_under_way(reassigned, described)
            for name in self.failures.see(now.offline, described):
                self.report(WentOffline(name))
            has_begun = False
            if under_way is not None:
                self._end_moves(under_way, now, described)
                if not under_way.sees_same_cluster(now.offline, alive):
                    self.report(PlansAgain())
                has_begun = self._begin_moves(under_way, now, described, admits)
                if now.count or has_begun:
                    under_way.note_moving()
            if not now.count and not has_begun:
                if under_way is None or not self._waits_for_deletions(under_way):
                    return
            elif now.count != shown_count and (
                not shown_count or time.monotonic() - shown >= CHECK_S
            ):
                self.report(Moving(now.count, are_others=not self.file.round))
                shown_count, shown = now.count, time.monotonic()
            last_seen |= dict.fromkeys(alive, time.monotonic())
            long_ago = time.monotonic() - BROKER_GONE_S
            involved = {
                broker
                for reassignment in now.reassigned.values()
                for broker in reassignment.replicas
            }
            away = [
                broker_id for broker_id in involved if last_seen.get(broker_id, began) < long_ago
            ]
            self._cancel_lost(now, away)
            self._abort_overfilling(now, described)
            if now.count and standstill.is_reached(now, time.monotonic()):
                self._end_standstill(now)
            if time.monotonic() - checked >= CHECK_S:
                self._detect_lost_throttles()
                self._adapt_throttle(now)
                checked = time.monotonic()
            if not self._throttled.issuperset(self._alive()):
                self.throttle()
            self._throttled.intersection_update(alive)
            self.sleep(PAUSE_S)

    def _end_moves(
        self,
        under_way: PlanUnderWay,
        now: ActiveMoves,
        described: Mapping[int, Collection[LogDirView]],
    ) -> None:
        """Record the moves that have ended, and remove their throttled replicas."""
        ended = under_way.ended(now, described)
        if not ended:
            return
        for move, has_moved in ended.items():
            source = under_way.directory(move.source)
            if has_moved and source.broker_id in described:
                place = (source.broker_id, source.path)
                self.deletions.add(place, move.size_bytes, source.deletion_delay_ms)
        names = {under_way.partition(move) for move in ended}
        round_ = parse_plan_json(self.file.round) if self.file.round else Plan({})
        left = Plan(
            {p: brokers for p, brokers in round_.replicas.items() if p not in names},
            {r: path for r, path in round_.directories.items() if r.partition not in names},
        )
        done = entries_of(self.file.throttled, names)
        self.file.deleted = [list(entry) for entry in self.deletions.entries]
        self.file.round = plan_json(left.replicas, left.directories)
        self.file.save()
        remove_entries(self.client, done)
        self.file.throttled = without_entries(self.file.throttled, done)

    def _begin_moves(
        self,
        under_way: PlanUnderWay,
        now: ActiveMoves,
        described: Mapping[int, Collection[LogDirView]],
        admits: Callable[[PlannedMove], bool],
    ) -> bool:
        """Begin the moves whose limits allow it; return whether one has begun.

        Brokers get the directories first, then the controller gets the new replicas.

        Raises:
            ApiError, ClientError: the cluster refused, or could not be asked.
        """
        round_ = parse_plan_json(self.file.round) if self.file.round else Plan({})
        due = under_way.due(round_, now, described)
        for move in due:
            if not admits(move):
                under_way.drop(move)
        moves, current = self._valid_moves(under_way)
        if not moves.replicas:
            return False
        if time.monotonic() - self._shown_s >= CHECK_S:
            self.report(under_way.progress())
            self._shown_s = time.monotonic()
        throttled = wanted_entries(self.client, moves, current)
        involved = {b for p, brokers in moves.replicas.items() for b in (*brokers, *current[p])}
        running = involved.intersection(self.client.metadata(()).brokers)
        self.file.throttled = with_entries(self.file.throttled, throttled)
        self.file.brokers = sorted({*self.file.brokers, *running})
        self.file.round = plan_json(
            {**round_.replicas, **moves.replicas}, {**round_.directories, **moves.directories}
        )
        self.file.save()
        add_entries(self.client, throttled)
        if not self._throttled.issuperset(self._alive()):
            self.throttle()
        unnamed = self._name_directories(moves)
        between = {p: b for p, b in moves.replicas.items() if current[p] != b and p not in unnamed}
        refused = alter_reassignments(self.client, between) if between else {}
        for partition, error in refused.items():
            if error is not None:
                self._refuse(str(partition), error)
        under_way.note_begun()
        return True

    def _valid_moves(
        self, under_way: PlanUnderWay
    ) -> tuple[Plan, Mapping[TopicPartition, tuple[int, ...]]]:
        """Return the due moves that others have not changed, and the replicas of their topics."""
        if not under_way.due_moves:
            return Plan({}), {}
        topics = sorted({under_way.partition(move).topic for move in under_way.due_moves})
        current = current_replicas(self.client, topics, missing_ok=True)
        replicas: dict[TopicPartition, tuple[int, ...]] = {}
        directories: dict[Replica, str] = {}
        for move in list(under_way.due_moves):
            name, before, after = under_way.change(move)
            if current.get(name) != before:
                under_way.drop(move)
                continue
            target = under_way.directory(move.target)
            replicas[name] = after
            directories[Replica(target.broker_id, name)] = target.path
        return Plan(replicas, directories), current

    def _waits_for_deletions(self, under_way: PlanUnderWay) -> bool:
        """Return whether moves wait for the space of deleted replicas; report it once.

        The wait is limited: see `PlanUnderWay.may_free_space`.

        Raises:
            ClientError: a broker could not be asked.
        """
        targets = [under_way.directory(target) for target in under_way.rolling.blocked_targets()]
        now_s = time.monotonic()
        pending = [
            directory
            for directory in targets
            if under_way.may_free_space(directory, now_s) and self._has_deleted(directory)
        ]
        if not pending:
            return False
        event = under_way.wait_event(pending)
        if event is not None:
            self.report(event)
        return True

    def _has_deleted(self, directory: DirectoryModel) -> bool:
        broker = self.client.metadata(()).brokers.get(directory.broker_id)
        if broker is None:
            return False
        reported = deleted_bytes_of(self.client, broker)
        if reported is not None:
            return reported.get(directory.path, 0) > 0
        place = (directory.broker_id, directory.path)
        return self.deletions.bytes_of(place) > 0

    def _adapt_throttle(self, now: ActiveMoves) -> None:
        """Lower the throttle while replicas fall behind, and raise it again afterwards.

        Raises:
            ApiError, ClientError: the cluster refused, or could not be asked.
        """
        lagging = lagging_partitions(self.client.metadata(), now.reassigned)
        step = self._backoff.update(lagging)
        if step is not None:
            self.report(step)
            self.throttle()

    def _abort_overfilling(
        self, now: ActiveMoves, described: Mapping[int, Collection[LogDirView]]
    ) -> None:
        """Cancel the moves of the present round into directories that fill up.

        Raises:
            OperationFailed: the cluster does not cancel one of them.
            ApiError, ClientError: the cluster refused, or could not be asked.
        """
        if not self.file.round:
            return
        plan = parse_plan_json(self.file.round)
        reasons = overfilling(plan, now, described, self._highest_fill)
        between = {r.partition: why for r, why in reasons.items() if r not in now.copies}
        if between:
            self._give_up(between)
        inside = Plan({}, {r: plan.directories[r] for r in reasons if r in now.copies})
        new = [replica for replica in inside.directories if replica not in self._given_up]
        for replica in new:
            self.report(GivenUp(str(replica), reasons[replica]))
        left = self._end_copies(inside) if inside.directories else {}
        if left:
            self._while_uncordoned(lambda: self._end_copies_soon(inside))
            left = self._end_copies(inside)
        self._report_not_stopped({r: path for r, path in left.items() if r in new})
        self._given_up.update(inside.directories)

    def _cancel_lost(self, now: ActiveMoves, away: Collection[int]) -> None:
        """Cancel the moves of the present round that cannot complete.

        Raises:
            OperationFailed: the cluster does not cancel one of them, so the wait would never end.
            ApiError, ClientError: the cluster refused, or could not be asked.
        """
        lost = now.lost(parse_plan_json(self.file.round), away) if self.file.round else {}
        if lost:
            self._give_up(lost)

    def _end_standstill(self, now: ActiveMoves) -> None:
        """Cancel the moves of the present round, because they make no progress.

        Raises:
            OperationFailed: others have begun the moves, or the cluster does not cancel one.
            ApiError, ClientError: the cluster refused, or could not be asked.
        """
        span = span_text(STUCK_S)
        own = now.of_plan(parse_plan_json(self.file.round)) if self.file.round else {}
        if own:
            self._give_up(dict.fromkeys(own, f"nothing of it was copied for {span}"))
            return
        names = now.names()
        raise OperationFailed(
            f"{count_noun(len(names), 'replica')} that others move, or that stay behind, made no "
            f"progress for {span}: {join_first(names, _MAX_NAMED)}. See the logs of "
            "these brokers, or cancel the moves with spindle kafka reassign-partitions --cancel; "
            "then start again"
        )

    def _give_up(self, reasons: Mapping[TopicPartition, str]) -> None:
        """Cancel moves, and report why.

        Raises:
            OperationFailed: the cluster does not cancel one of them.
            ApiError, ClientError: the cluster refused, or could not be asked.
        """
        for partition, reason in reasons.items():
            self.report(GivenUp(str(partition), reason))
        for partition, error in alter_reassignments(self.client, dict.fromkeys(reasons)).items():
            if error is not None and error.code not in _HAS_ENDED:
                raise OperationFailed(
                    f"the move of {partition} can neither end ({reasons[partition]}) nor be "
                    f"cancelled ({refusal_text(error)}): start the broker, and give the same "
                    "command again"
                )

    def stop_moves(self, uncordon: Callable[[], None] = lambda: None) -> None:
        """Cancel the moves of the round that may be running. Moves of others continue.

        Args:
            uncordon: removes the cordons of this execution. It is called if a broker refuses to
                cancel a copy because its source directory is cordoned.

        Raises:
            ApiError, ClientError: the cluster refused, or could not be asked.
        """
        if not self.file.round:
            return
        plan = parse_plan_json(self.file.round)
        now = moves_under_way(list_reassignments(self.client, list(plan.replicas)), {})
        alter_reassignments(self.client, dict.fromkeys(now.of_plan(plan)))
        left = self._end_copies(plan)
        if left:
            uncordon()
            left = self._end_copies_soon(plan)
        self._report_not_stopped(left, has_throttle=False)

    def _report_not_stopped(
        self, left: Mapping[Replica, str], *, has_throttle: bool = True
    ) -> None:
        for replica, path in left.items():
            self.report(NotStopped(str(replica), path, has_throttle))

    def _end_copies_soon(self, plan: Plan) -> dict[Replica, str]:
        """Cancel the copies of a plan; retry until their broker knows that cordons were removed."""
        deadline = time.monotonic() + UNCORDONED_S
        while (left := self._end_copies(plan)) and time.monotonic() < deadline:
            time.sleep(PAUSE_S)
        return left

    def _end_copies(self, plan: Plan) -> dict[Replica, str]:
        """Cancel the copies of a plan between directories of a broker.

        Returns:
            The replicas whose copies continue because their current directory is cordoned.
        """
        places = places_of(self.client)
        left = {}
        ended = {}
        for replica, path in plan.directories.items():
            if places.futures.get(replica) == path and replica in places.directories:
                here = places.directories[replica]
                back = {replica.partition: here}
                error = move_replicas(self.client, replica.broker, back)[replica.partition]
                if error is None:
                    ended[replica] = (here, path)
                elif error.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT:
                    left[replica] = here
        self._reverse_moves(ended)
        return left

    def _reverse_moves(self, ended: Mapping[Replica, tuple[str, str]]) -> None:
        """Cancel moves back to the source, if a copy completed before it was cancelled.

        Args:
            ended: the source and the target directory of each replica.
        """
        places = places_of(self.client) if ended else ReplicaPlaces({}, {})
        for replica, (here, path) in ended.items():
            if places.directories.get(replica) == path and places.futures.get(replica) == here:
                move_replicas(self.client, replica.broker, {replica.partition: path})

    def throttle(self) -> None:
        """Set the throttle of this run, also for the round of an earlier run.

        Raises:
            ApiError, ClientError: the cluster refused, or could not be asked.
        """
        add_entries(self.client, self.file.throttled)
        rates = (*BETWEEN_BROKERS, *BETWEEN_DIRECTORIES)
        for broker in self._alive():
            # A broker that stops now gets its throttle when it is back.
            with suppress(BrokerNotRunning):
                throttle_brokers(self.client, [broker], rates, self._backoff.bytes_per_second)
                self._throttled.add(broker)

    def _detect_lost_throttles(self) -> None:
        """Detect throttles that another execution has removed at its end."""
        for broker in self._alive():
            with suppress(ApiError, ClientError):
                if not has_throttle(self.client, broker):
                    self._throttled.discard(broker)

    def unthrottle(self) -> None:
        """Remove the throttles of all brokers that run; the file keeps the others.

        Raises:
            ApiError, ClientError: the cluster refused, or could not be asked.
        """
        remove_entries(self.client, self.file.throttled)
        self.file.throttled = {}
        for broker in self._alive():
            with suppress(BrokerNotRunning):
                remove_throttles(self.client, [broker], [])
                self.file.brokers.remove(broker)

    def pause(self) -> None:
        """Remove the throttles while nothing moves; the file keeps the remaining ones."""
        with suppress(ApiError, ClientError):
            self.unthrottle()
            self.file.round = ""
        if self.file.path.exists():
            self.file.save()

    def report_throttles_left(self, command: str) -> None:
        """Report the brokers that keep their throttles because they do not run.

        Args:
            command: the call that removes them later.
        """
        if self.file.brokers:
            self.report(ThrottlesLeft(list(self.file.brokers), command))

    def _name_directories(self, plan: Plan) -> set[TopicPartition]:
        """Send brokers the directories of a round; return the partitions that they refuse."""
        unnamed: set[TopicPartition] = set()
        for broker in sorted({replica.broker for replica in plan.directories}):
            wanted: dict[TopicPartition, str] = {
                replica.partition: path
                for replica, path in plan.directories.items()
                if replica.broker == broker
            }
            answers: Mapping[TopicPartition, ApiError | None]
            try:
                answers = move_replicas(self.client, broker, wanted)
            except BrokerNotRunning as missing:
                answers = dict.fromkeys(wanted, missing)
            for partition, error in answers.items():
                # A broker remembers the directory of a replica that it does not have yet.
                if error is not None and error.code is not ErrorCode.REPLICA_NOT_AVAILABLE:
                    self._refuse(f"{Replica(broker, partition)} to {wanted[partition]}", error)
                    unnamed.add(partition)
        return unnamed

    def _refuse(self, what: str, error: ApiError) -> None:
        reason = refusal_text(error)
        self.refused.append(f"{what}: {reason}")
        self.report(MoveRefused(what, reason))

    def _alive(self) -> list[int]:
        """Return the running brokers that may have throttles."""
        alive = self.client.metadata(()).brokers
        return [broker for broker in self.file.brokers if broker in alive]
