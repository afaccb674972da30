"""Executes a drain: cordon, then plan, move one round, and plan again until nothing is left."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from spindle.cli.execution.cordons import remove_cordons, set_cordon
from spindle.cli.execution.deleted_space import deleted_space
from spindle.cli.execution.directory_failures import with_failures
from spindle.cli.execution.execution_file import ExecutionFile
from spindle.cli.execution.leaderships import give_leaderships
from spindle.cli.execution.plan_rounds import run_rounds
from spindle.cli.execution.planning import ExecutionPlanning
from spindle.cli.execution.progress_events import ProgressEvent, Remarks, Reporter
from spindle.cli.plan.place import find_directories, parse_place, place_text
from spindle.client.admin.cluster import finalized_level
from spindle.client.blocking.client import WireClient
from spindle.common.ids import TopicPartition
from spindle.metadata.features import (
    CORDONED_DIRECTORIES_LEVEL,
    METADATA_VERSION,
    metadata_version_name,
)
from spindle.planner.goals import drain, moved_to_other_brokers
from spindle.planner.leaders import even_leaders, preferred_orders
from spindle.planner.model import ClusterModel
from spindle.planner.plan import PlacementPlan


def end_step(place: str, plan: PlacementPlan, *, can_cordon: bool) -> ProgressEvent:
    """Return the last step of a drain. Only a directory that is online can be cordoned.

    Args:
        can_cordon: False if the cluster does not support cordons.
    """
    emptied = [plan.cluster.directories[directory] for directory in plan.leaving]
    is_cordoned = can_cordon and bool(emptied) and all(directory.is_online for directory in emptied)
    text = f"{place_text(place)} has no replicas and is cordoned"
    if not emptied:
        text = f"{place_text(place)} has no replicas; it does not answer, so it is not cordoned"
    elif not can_cordon:
        text = f"{place_text(place)} has no replicas; it is not cordoned, so new topics may use it"
    elif not is_cordoned:
        text = f"{place_text(place)} has no replicas; its offline directories are not cordoned"
    return ProgressEvent("empty", text, {"isCordoned": is_cordoned})


def _no_cordons(place: str, level: int) -> ProgressEvent:
    needed = metadata_version_name(CORDONED_DIRECTORIES_LEVEL)
    version = metadata_version_name(level) if level else "unknown"
    text = (
        f"this cluster does not support cordons: its metadata.version is {version}, and they need "
        f"{needed}. {place_text(place)} is emptied without one, so topics that are created "
        "meanwhile may get replicas there, which are moved as well"
    )
    return ProgressEvent("noCordons", text, {"metadataVersion": version, "needed": needed})


class DrainRun:
    """One run of a drain.

    Args:
        place: `BROKER` or `BROKER:DIR`.
        keeps_leaders: change no preferred leader at the end.
    """

    def __init__(
        self,
        client: WireClient,
        file: ExecutionFile,
        place: str,
        planning: ExecutionPlanning,
        report: Reporter,
        *,
        keeps_leaders: bool,
    ) -> None:
        self._client = client
        self._file = file
        self._place = place
        self._planning = planning
        self._report = report
        self._keeps_leaders = keeps_leaders
        self._remarks = Remarks(report)
        self._can_cordon = True
        self._is_new = True
        self._moved: set[TopicPartition] = set()
        self._broker_id, self._path = parse_place(place)
        self._executor = planning.executor(client, file, report, self._while_uncordoned)

    def finish(self) -> None:
        """Empty the place; the cordon stays.

        Raises:
            Infeasible: a replica has no other place.
            CommandFailed: replicas stay although they were moved.
            ApiError, ClientError: the cluster refused, or could not be asked.
        """
        level = finalized_level(self._client, METADATA_VERSION)
        self._can_cordon = level >= CORDONED_DIRECTORIES_LEVEL
        if not self._can_cordon:
            self._report(_no_cordons(self._place, level))
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
        end = end_step(self._place, plan, can_cordon=self._can_cordon)
        self._report(with_failures(end, self.went_offline()))
        self._executor.tell_throttles("the same command")

    def went_offline(self) -> list[str]:
        """Return the directories that have gone offline during this run, and are not back."""
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
        text = f"the drain of {place_text(self._place)} is cancelled"
        self._report(ProgressEvent("cancelled", text))
        self._executor.tell_throttles("the command with --cancel")

    def _remove_cordons(self) -> None:
        remove_cordons(self._client, self._broker_id, self._file, self._report)

    def _while_uncordoned(self, stop: Callable[[], object]) -> None:
        """Call a function while the cordons of this drain are removed, and set them again."""
        paths = list(self._file.cordoned)
        self._remove_cordons()
        try:
            stop()
        finally:
            self._set_cordons(paths)

    def _even_leaders(self, plan: PlacementPlan) -> None:
        """Let brokers lead equally many partitions, by the order of those that this run moved."""
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
            stays=f"{place_text(self._place)} does not get emptier; see the broker's log",
        )

    def _plan(self) -> PlacementPlan:
        def make(model: ClusterModel) -> PlacementPlan:
            places = []
            # Brokers before Kafka 4.0 do not show a broker that is down and has no replicas.
            if self._is_new or any(broker.broker_id == self._broker_id for broker in model.brokers):
                places = find_directories(model, self._broker_id, self._path)
            self._is_new = False
            return drain(model, places, self._planning.limits)

        own = self._executor.deletions
        return self._planning.plan(self._client, make, own, remarks=self._remarks)

    def _cordon(self, plan: PlacementPlan) -> None:
        """Cordon what is not cordoned yet; the file names a cordon before it is set."""
        self._set_cordons(self._uncordoned(plan))

    def _set_cordons(self, wanted: Sequence[str]) -> None:
        if not wanted:
            return
        # A broker hears of a cordon late, so a path may be wanted again.
        self._file.cordoned = list(dict.fromkeys([*self._file.cordoned, *wanted]))
        self._file.save()
        for path in wanted:
            set_cordon(self._client, self._broker_id, path, self._report)

    def _uncordoned(self, plan: PlacementPlan) -> list[str]:
        """Return the paths that can be cordoned, and are not."""
        if not self._can_cordon or self._broker_id not in self._client.metadata(()).brokers:
            return []
        leaving = [plan.cluster.directories[directory] for directory in plan.leaving]
        return [
            directory.path
            for directory in leaving
            if directory.is_online and not directory.is_cordoned
        ]
