"""Executes a drain: cordon, then plan, move one round, and plan again until nothing is left."""

import time
from collections.abc import Callable
from typing import Final

from spindle.cli.drain.drain_file import DrainFile
from spindle.cli.failure import CommandFailed
from spindle.cli.plan.files import round_texts
from spindle.cli.plan.place import find_directories, parse_place
from spindle.cli.plan.snapshot import read_snapshot
from spindle.cli.tools.reassignment_moves import current_replicas, places_of
from spindle.cli.tools.reassignment_plan import Plan, Replica, parse_plan, plan_json
from spindle.cli.tools.reassignment_throttles import (
    BETWEEN_BROKERS,
    BETWEEN_DIRECTORIES,
    remove_throttles,
    throttle_brokers,
    throttle_topics,
)
from spindle.client.admin.cordons import CordonRefused, cordon, uncordon
from spindle.client.admin.partitions import (
    alter_reassignments,
    list_reassignments,
    move_replicas,
)
from spindle.client.admin.refusals import refusal_text
from spindle.client.wire.cluster import WireClient
from spindle.common.counted import counted
from spindle.common.errors import ErrorCode
from spindle.common.ids import TopicPartition
from spindle.common.sizes import size_text
from spindle.config.cordon_notes import CordonNote
from spindle.planner.limits import PlanLimits
from spindle.planner.plan import PlacementPlan
from spindle.planner.plans import drain

_PAUSE_S: Final = 0.5
_MOST_VAIN_ROUNDS: Final = 5

Say = Callable[[str], None]


def end_text(place: str, plan: PlacementPlan) -> str:
    """Return the last line of a drain. Only a directory that is online can be cordoned."""
    emptied = [plan.cluster.directories[each] for each in plan.leaving]
    if emptied and all(each.is_online for each in emptied):
        return f"{place} has no replicas and is cordoned"
    return f"{place} has no replicas; its offline directories are not cordoned"


class DrainRun:
    """One run of a drain. Every round is planned anew, for the cluster as it is then.

    Args:
        capacity_bytes: of each directory; None to believe the brokers.
        say: shows a line about the progress.
    """

    def __init__(
        self,
        client: WireClient,
        file: DrainFile,
        limits: PlanLimits,
        capacity_bytes: int | None,
        say: Say,
    ) -> None:
        self._client = client
        self._file = file
        self._limits = limits
        self._capacity_bytes = capacity_bytes
        self._say = say
        self._broker_id, self._path = parse_place(file.place)

    def finish(self) -> None:
        """Empty the place; the cordon stays.

        Raises:
            Infeasible: a replica has no other place.
            CommandFailed: replicas stay although they were moved.
            ApiError, ClientError: the cluster refused, or could not be asked.
        """
        self._throttle()
        self._wait()
        vain_rounds, left = 0, -1
        while (plan := self._plan()).rounds:
            self._cordon(plan)
            now_left = sum(len(each.moves) for each in plan.rounds)
            vain_rounds = vain_rounds + 1 if now_left == left else 0
            if vain_rounds == _MOST_VAIN_ROUNDS:
                raise CommandFailed(
                    f"{self._file.place} does not get emptier; see the broker's log"
                )
            left = now_left
            moves = len(plan.rounds[0].moves)
            size = size_text(plan.moved_bytes)
            self._say(f"{counted(left, 'replica')} to move, {size}; {moves} now")
            self._begin(parse_plan(round_texts(plan)[0]))
            time.sleep(_PAUSE_S)
            self._wait()
        self._cordon(plan)
        self._unthrottle()
        self._file.end()
        self._say(end_text(self._file.place, plan))
        self._tell_throttles("the same command")

    def cancel(self) -> None:
        """Stop the moves of this drain, and remove its throttles and its cordons.

        Replicas that have left stay where they are.
        """
        if self._file.round:
            plan = parse_plan(self._file.round)
            under_way = list_reassignments(self._client, list(plan.replicas))
            alter_reassignments(self._client, dict.fromkeys(under_way))
            places = places_of(self._client)
            for replica in plan.directories:
                if replica in places.futures and replica in places.directories:
                    back = {replica.partition: places.directories[replica]}
                    move_replicas(self._client, replica.broker, back)
        self._unthrottle()
        for path in self._file.cordoned:
            try:
                uncordon(self._client, self._broker_id, path)
            except CordonRefused as error:
                # The drain was killed before it set this cordon, or an operator has removed it.
                self._say(str(error))
        self._file.end()
        self._say(f"the drain of {self._file.place} is cancelled")
        self._tell_throttles("the command with --cancel")

    def _plan(self) -> PlacementPlan:
        snapshot = read_snapshot(self._client, self._capacity_bytes)
        places = find_directories(snapshot.model, self._broker_id, self._path)
        return drain(snapshot.model, places, self._limits)

    def _cordon(self, plan: PlacementPlan) -> None:
        """Cordon what is not cordoned yet; the file names a cordon before it is set."""
        if self._broker_id not in self._client.metadata(()).brokers:
            return
        leaving = [plan.cluster.directories[each] for each in plan.leaving]
        wanted = [each.path for each in leaving if each.is_online and not each.is_cordoned]
        if not wanted:
            return
        self._file.cordoned = [*self._file.cordoned, *wanted]
        self._file.save()
        for path in wanted:
            cordon(self._client, self._broker_id, CordonNote(path))
            self._say(f"cordoned {path} of broker {self._broker_id}")

    def _begin(self, plan: Plan) -> None:
        """Start a round. Each broker hears of the directory before the replica is created."""
        topics = sorted({partition.topic for partition in plan.replicas})
        current = current_replicas(self._client, topics)
        involved = {b for p, brokers in plan.replicas.items() for b in (*brokers, *current[p])}
        self._file.topics = sorted({*self._file.topics, *topics})
        running = involved.intersection(self._client.metadata(()).brokers)
        self._file.brokers = sorted({*self._file.brokers, *running})
        self._file.round = plan_json(plan.replicas, plan.directories)
        self._file.save()
        throttle_topics(self._client, plan, current)
        self._throttle()
        self._name_directories(plan)
        between = {p: b for p, b in plan.replicas.items() if current[p] != b}
        refused = alter_reassignments(self._client, between) if between else {}
        errors = [f"{p}: {refusal_text(error)}" for p, error in refused.items() if error]
        if errors:
            raise CommandFailed("\n".join(errors))

    def _name_directories(self, plan: Plan) -> None:
        for broker in sorted({replica.broker for replica in plan.directories}):
            wanted: dict[TopicPartition, str] = {
                replica.partition: path
                for replica, path in plan.directories.items()
                if replica.broker == broker
            }
            for partition, error in move_replicas(self._client, broker, wanted).items():
                # A broker keeps the directory in mind for a replica that it does not have yet.
                if error is not None and error.code is not ErrorCode.REPLICA_NOT_AVAILABLE:
                    name = Replica(broker, partition)
                    raise CommandFailed(f"{name} to {wanted[partition]}: {refusal_text(error)}")

    def _wait(self) -> None:
        """Wait until no replica of the cluster moves."""
        told = 0
        while True:
            under_way = len(list_reassignments(self._client))
            under_way += len(places_of(self._client).futures)
            if not under_way:
                return
            if under_way != told:
                self._say(f"moving {counted(under_way, 'replica')}")
                told = under_way
            time.sleep(_PAUSE_S)

    def _throttle(self) -> None:
        """Set the throttle of this run, also for a round that an earlier run began."""
        rates = (*BETWEEN_BROKERS, *BETWEEN_DIRECTORIES)
        limit = self._limits.throttle_bytes_per_second
        throttle_brokers(self._client, self._alive_brokers(), rates, limit)

    def _unthrottle(self) -> None:
        topics = self._client.metadata(self._file.topics).topics if self._file.topics else {}
        alive = self._alive_brokers()
        remove_throttles(self._client, alive, sorted(topics))
        self._file.brokers = [each for each in self._file.brokers if each not in alive]

    def _tell_throttles(self, command: str) -> None:
        if self._file.brokers:
            names = ", ".join(map(str, self._file.brokers))
            self._say(
                f"the throttles of broker {names} are left, because it is not running: give "
                f"{command} again when it runs"
            )

    def _alive_brokers(self) -> list[int]:
        """Return the brokers that may have throttles and that can be asked."""
        alive = self._client.metadata(()).brokers
        return [each for each in self._file.brokers if each in alive]
