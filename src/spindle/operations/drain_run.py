"""Drains: cordon, then plan, move one round, and plan again until nothing is left."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from spindle.client.admin.cluster import describe_brokers, finalized_level
from spindle.client.blocking.client import WireClient
from spindle.common.ids import TopicPartition
from spindle.metadata.features import (
    CORDONED_DIRECTORIES_LEVEL,
    METADATA_VERSION,
    metadata_version_name,
)
from spindle.operations.cancellation import Cancellation, ProgressReport, Sleep, undone_if_cancelled
from spindle.operations.deletions import deleted_space
from spindle.operations.directories import DrainTarget, drain_target, find_directories
from spindle.operations.drain_removal import Removal, check_removal, remove_drained
from spindle.operations.errors import CLUSTER_FAILURES, OperationFailed
from spindle.operations.events import (
    Drained,
    NoCordons,
    OnProgress,
    Remarks,
    Undone,
    ignore_progress,
)
from spindle.operations.execution.cordons import remove_cordons, set_cordon
from spindle.operations.execution.execution_file import ExecutionFile, open_execution_file
from spindle.operations.execution.executor import RoundExecutor
from spindle.operations.execution.leaderships import give_leaderships
from spindle.operations.execution.plan_rounds import run_rounds
from spindle.operations.execution.planning import plan_now
from spindle.operations.plan_settings import PlanSettings
from spindle.operations.state_files import locked
from spindle.planner import goals
from spindle.planner.goals import moved_to_other_brokers
from spindle.planner.leaders import even_leaders, preferred_orders
from spindle.planner.model import ClusterModel
from spindle.planner.plan import Infeasible, PlacementPlan


@dataclass(frozen=True, slots=True)
class DrainResult:
    """The end of a drain.

    Attributes:
        place: the broker or directory, which has no replicas.
        is_cordoned: no new replica is placed there.
        went_offline: directories that went offline meanwhile, as `BROKER:DIR`.
        removal: how it was removed; None if it was not.
    """

    place: DrainTarget
    is_cordoned: bool
    went_offline: tuple[str, ...]
    removal: Removal | None = None


def drain(
    client: WireClient,
    broker: int,
    directory: str | None = None,
    *,
    then: Removal | None = None,
    settings: PlanSettings | None = None,
    keeps_leaders: bool = False,
    state: Path | None = None,
    on_progress: OnProgress = ignore_progress,
    cancellation: Cancellation | None = None,
) -> DrainResult:
    """Cordon a broker or one of its log directories, and move all its replicas away.

    After a kill, the same call continues. If it is cancelled, the moves stop and the cordon is
    removed; replicas that have left stay where they are.

    Args:
        directory: its path; None for all directories of the broker.
        then: what to do afterwards: remove the directory, or unregister the broker, which must be
            stopped by then.
        keeps_leaders: change no preferred leader at the end.
        state: the file that a later call reads to continue or to undo; None for
            `spindle-drain-BROKER.json` in the working directory.

    Raises:
        Infeasible: a replica has no other place.
        OperationFailed: replicas stay although they were moved, or the broker or directory is
            unknown or cannot be removed.
        ApiError, ClientError: the cluster refused, or could not be asked.
        Cancelled, KeyboardInterrupt: it was cancelled, and has undone its changes.

    Examples:
        >>> drain(client, 2, "/disk3", then=Removal.REMOVE, on_progress=print)
    """
    place = drain_target(broker, directory)
    if then is not None:
        check_removal(client, then, place)
    file = state or drain_state(broker)
    cluster_id = describe_brokers(client).cluster_id
    sleep = cancellation.sleep if cancellation is not None else None
    report = ProgressReport(on_progress)
    with locked(file, "drain"):
        run = DrainRun(
            client,
            open_execution_file(file, cluster_id, f"drain {place}"),
            place,
            settings or PlanSettings(),
            report,
            keeps_leaders=keeps_leaders,
            sleep=sleep,
        )
        with (
            undone_if_cancelled(run.cancel, file, report, "`cancel_drain`"),
            _state_noted(file),
        ):
            is_cordoned = run.finish()
        if then is not None:
            remove_drained(client, then, place, run.went_offline(), report)
        return DrainResult(place, is_cordoned, tuple(run.went_offline()), then)


@contextmanager
def _state_noted(state: Path) -> Iterator[None]:
    """Add a note to a failure: the changes that remain, and how to continue.

    Raises:
        Infeasible, OperationFailed, ApiError, ClientError: the one that was raised inside.
    """
    try:
        yield
    except (Infeasible, OperationFailed, *CLUSTER_FAILURES) as error:
        note = "Nothing has changed."
        if state.exists():
            note = (
                f"{state} has the cordons and throttles of this drain; the same call continues it, "
                "and `cancel_drain` removes them."
            )
        error.add_note(note)
        raise


def cancel_drain(
    client: WireClient,
    broker: int,
    directory: str | None = None,
    *,
    state: Path | None = None,
    on_progress: OnProgress = ignore_progress,
) -> None:
    """Undo a drain that was killed: stop its moves, and remove its throttles and cordons.

    Args:
        state: the file of the drain.

    Raises:
        OperationFailed: there is no such drain, or it still runs.
        ApiError, ClientError: the cluster refused, or could not be asked.
    """
    place, file = drain_target(broker, directory), state or drain_state(broker)
    cluster_id = describe_brokers(client).cluster_id
    with locked(file, "drain"):
        execution = open_execution_file(file, cluster_id, f"drain {place}")
        if not file.exists():
            raise OperationFailed(f"there is no drain to cancel: {file} does not exist")
        DrainRun(client, execution, place, PlanSettings(), on_progress).cancel()


def drain_state(broker: int) -> Path:
    """Return the default path of the state of a drain."""
    return Path(f"spindle-drain-{broker}.json")


def end_of_drain(place: DrainTarget, plan: PlacementPlan, *, can_cordon: bool) -> Drained:
    """Return the last event of a drain. Only a directory that is online can be cordoned.

    Args:
        can_cordon: False if the cluster does not support cordons.
    """
    emptied = [plan.cluster.directories[directory] for directory in plan.leaving]
    is_cordoned = can_cordon and bool(emptied) and all(directory.is_online for directory in emptied)
    why = ""
    if not emptied:
        why = "it does not answer, so it is not cordoned"
    elif not can_cordon:
        why = "it is not cordoned, so new topics may use it"
    elif not is_cordoned:
        why = "its offline directories are not cordoned"
    return Drained([], is_cordoned, place, why)


class DrainRun:
    """One run of a drain.

    Args:
        keeps_leaders: change no preferred leader at the end.
        sleep: waits between two checks; may raise `Cancelled`.
    """

    def __init__(
        self,
        client: WireClient,
        file: ExecutionFile,
        place: DrainTarget,
        settings: PlanSettings,
        report: OnProgress,
        *,
        keeps_leaders: bool = False,
        sleep: Sleep | None = None,
    ) -> None:
        self._client = client
        self._file = file
        self._place = place
        self._settings = settings
        self._report = report
        self._keeps_leaders = keeps_leaders
        self._remarks = Remarks(report)
        self._can_cordon = True
        self._is_new = True
        self._moved: set[TopicPartition] = set()
        self._executor = RoundExecutor(
            client,
            file,
            settings.limits,
            report,
            highest_fill=settings.highest_fill,
            while_uncordoned=self._while_uncordoned,
            sleep=sleep,
        )

    def finish(self) -> bool:
        """Move all replicas away; the cordon stays. Return whether the target is cordoned.

        Raises:
            Infeasible: a replica has no other place.
            OperationFailed: replicas stay although they were moved.
            ApiError, ClientError: the cluster refused, or could not be asked.
        """
        level = finalized_level(self._client, METADATA_VERSION)
        self._can_cordon = level >= CORDONED_DIRECTORIES_LEVEL
        if not self._can_cordon:
            needed = metadata_version_name(CORDONED_DIRECTORIES_LEVEL)
            version = metadata_version_name(level) if level else "unknown"
            self._report(NoCordons(version, needed, self._place))
        plan = self._move_all()
        if self._uncordoned(plan):
            # Topics that were created until now may have replicas there.
            self._cordon(plan)
            plan = self._move_all()
        if not self._keeps_leaders:
            self._even_leaders(plan)
        self._executor.unthrottle()
        self._file.cordoned = []
        self._file.end()
        leaving = [plan.cluster.directories[directory] for directory in plan.leaving]
        space = deleted_space(leaving, self._executor.deletions)
        if space is not None:
            self._report(space)
        end = end_of_drain(self._place, plan, can_cordon=self._can_cordon)
        self._report(replace(end, went_offline=self.went_offline()))
        self._executor.report_throttles_left("the same call")
        return end.is_cordoned

    def went_offline(self) -> list[str]:
        """Return the directories that went offline during this run and are still offline."""
        return self._executor.failures.still_offline()

    def cancel(self) -> None:
        """Stop the moves of this drain, and remove its throttles and its cordons.

        Replicas that have left stay where they are.

        Raises:
            ApiError, ClientError: the cluster refused, or could not be asked.
        """
        self._executor.stop_moves(uncordon=self._remove_cordons)
        self._executor.unthrottle()
        self._remove_cordons()
        self._file.end()
        self._report(Undone(f"the drain of {self._place.text}"))
        self._executor.report_throttles_left("`cancel_drain`")

    def _remove_cordons(self) -> None:
        remove_cordons(self._client, self._place.broker, self._file, self._report)

    def _while_uncordoned(self, stop: Callable[[], object]) -> None:
        """Call a function while the cordons of this drain are removed, and set them again."""
        paths = list(self._file.cordoned)
        self._remove_cordons()
        try:
            stop()
        finally:
            self._set_cordons(paths)

    def _even_leaders(self, plan: PlacementPlan) -> None:
        """Balance leaders by reordering the replicas of partitions that this run moved."""
        models = plan.cluster.partitions
        moved = [number for number, model in enumerate(models) if model.name in self._moved]
        preferred = even_leaders(plan.cluster, plan.places(), moved)
        orders = preferred_orders(replace(plan, preferred=preferred))
        give_leaderships(self._client, orders, self._report)

    def _before_round(self, plan: PlacementPlan) -> None:
        self._cordon(plan)
        moved = moved_to_other_brokers(plan.rounds, plan.cluster)
        self._moved.update(plan.cluster.partitions[directory].name for directory in moved)

    def _move_all(self) -> PlacementPlan:
        return run_rounds(
            self._executor,
            self._plan,
            before_round=self._before_round,
            distance=lambda plan: sum(len(planned_round.moves) for planned_round in plan.rounds),
            stays=f"{self._place.text} does not get emptier; see the broker's log",
        )

    def _plan(self) -> PlacementPlan:
        def make(model: ClusterModel) -> PlacementPlan:
            places = []
            # Brokers before Kafka 4.0 do not show a broker that is down and has no replicas.
            if self._is_new or any(
                broker.broker_id == self._place.broker for broker in model.brokers
            ):
                places = find_directories(model, self._place.broker, self._place.path)
            self._is_new = False
            return goals.drain(model, places, self._settings.limits)

        own = self._executor.deletions
        return plan_now(self._client, self._settings, make, own, remarks=self._remarks)

    def _cordon(self, plan: PlacementPlan) -> None:
        """Cordon what is not cordoned yet; the file names a cordon before it is set."""
        self._set_cordons(self._uncordoned(plan))

    def _set_cordons(self, wanted: Sequence[str]) -> None:
        if not wanted:
            return
        # A broker learns a cordon late, so a path may be in the list again.
        self._file.cordoned = list(dict.fromkeys([*self._file.cordoned, *wanted]))
        self._file.save()
        for path in wanted:
            set_cordon(self._client, self._place.broker, path, self._report)

    def _uncordoned(self, plan: PlacementPlan) -> list[str]:
        """Return the paths that can be cordoned and are not cordoned."""
        if not self._can_cordon or self._place.broker not in self._client.metadata(()).brokers:
            return []
        leaving = [plan.cluster.directories[directory] for directory in plan.leaving]
        return [
            directory.path
            for directory in leaving
            if directory.is_online and not directory.is_cordoned
        ]
