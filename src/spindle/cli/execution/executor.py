"""Moves the replicas of one round, under throttles that are removed afterwards."""

import time
from typing import Final

from spindle.cli.execution.execution_file import ExecutionFile
from spindle.cli.execution.steps import ExecutionStep, Tell
from spindle.cli.failure import CommandFailed
from spindle.cli.plan.files import round_texts
from spindle.cli.tools.reassignment_moves import current_replicas, places_of
from spindle.cli.tools.reassignment_plan import Plan, Replica, parse_plan, plan_json
from spindle.cli.tools.reassignment_throttles import (
    BETWEEN_BROKERS,
    BETWEEN_DIRECTORIES,
    remove_throttles,
    throttle_brokers,
    throttle_topics,
)
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
from spindle.planner.plan import PlacementPlan

PAUSE_S: Final = 0.5
"""Time between two looks at moves."""


class RoundExecutor:
    """Executes rounds one after the other; the file says at each moment what is to be undone.

    Args:
        throttle_bytes_per_second: for each broker: into it, out of it, and between directories.
    """

    def __init__(
        self,
        client: WireClient,
        file: ExecutionFile,
        throttle_bytes_per_second: int,
        tell: Tell,
    ) -> None:
        self.client = client
        self.file = file
        self.tell = tell
        self._throttle_bytes_per_second = throttle_bytes_per_second

    def begin(self, plan: PlacementPlan) -> None:
        """Start the first round of a plan. Each broker hears of the directory before the replica
        is created.

        Raises:
            CommandFailed: the cluster refused a move.
            ApiError, ClientError: the cluster refused, or could not be asked.
        """
        moves = parse_plan(round_texts(plan)[0])
        topics = sorted({partition.topic for partition in moves.replicas})
        current = current_replicas(self.client, topics)
        involved = {b for p, brokers in moves.replicas.items() for b in (*brokers, *current[p])}
        self.file.topics = sorted({*self.file.topics, *topics})
        running = involved.intersection(self.client.metadata(()).brokers)
        self.file.brokers = sorted({*self.file.brokers, *running})
        self.file.round = plan_json(moves.replicas, moves.directories)
        self.file.save()
        throttle_topics(self.client, moves, current)
        self.throttle()
        self._name_directories(moves)
        between = {p: b for p, b in moves.replicas.items() if current[p] != b}
        refused = alter_reassignments(self.client, between) if between else {}
        errors = [f"{p}: {refusal_text(error)}" for p, error in refused.items() if error]
        if errors:
            raise CommandFailed("\n".join(errors))

    def wait(self) -> None:
        """Wait until no replica of the cluster moves.

        Raises:
            ApiError, ClientError: the cluster refused, or could not be asked.
        """
        told = 0
        while True:
            under_way = moving_replicas(self.client)
            if not under_way:
                return
            if under_way != told:
                text = f"moving {counted(under_way, 'replica')}"
                self.tell(ExecutionStep("moving", text, {"replicas": under_way}))
                told = under_way
            time.sleep(PAUSE_S)

    def stop_moves(self) -> None:
        """Cancel the moves of the round that may be under way.

        Raises:
            ApiError, ClientError: the cluster refused, or could not be asked.
        """
        if not self.file.round:
            return
        plan = parse_plan(self.file.round)
        under_way = list_reassignments(self.client, list(plan.replicas))
        alter_reassignments(self.client, dict.fromkeys(under_way))
        places = places_of(self.client)
        for replica in plan.directories:
            if replica in places.futures and replica in places.directories:
                back = {replica.partition: places.directories[replica]}
                move_replicas(self.client, replica.broker, back)

    def throttle(self) -> None:
        """Set the throttle of this run, also for a round that an earlier run began.

        Raises:
            ApiError, ClientError: the cluster refused, or could not be asked.
        """
        rates = (*BETWEEN_BROKERS, *BETWEEN_DIRECTORIES)
        throttle_brokers(self.client, self._alive(), rates, self._throttle_bytes_per_second)

    def unthrottle(self) -> None:
        """Remove the throttles of all brokers that run; the file keeps the others.

        Raises:
            ApiError, ClientError: the cluster refused, or could not be asked.
        """
        topics = self.client.metadata(self.file.topics).topics if self.file.topics else {}
        alive = self._alive()
        remove_throttles(self.client, alive, sorted(topics))
        self.file.brokers = [each for each in self.file.brokers if each not in alive]

    def tell_throttles(self, command: str) -> None:
        """Name the brokers that keep their throttles because they do not run.

        Args:
            command: what removes them later.
        """
        if self.file.brokers:
            names = ", ".join(map(str, self.file.brokers))
            text = (
                f"the throttles of broker {names} are left, because it is not running: give "
                f"{command} again when it runs"
            )
            self.tell(ExecutionStep("throttlesLeft", text, {"brokers": self.file.brokers}))

    def _name_directories(self, plan: Plan) -> None:
        for broker in sorted({replica.broker for replica in plan.directories}):
            wanted: dict[TopicPartition, str] = {
                replica.partition: path
                for replica, path in plan.directories.items()
                if replica.broker == broker
            }
            for partition, error in move_replicas(self.client, broker, wanted).items():
                # A broker keeps the directory in mind for a replica that it does not have yet.
                if error is not None and error.code is not ErrorCode.REPLICA_NOT_AVAILABLE:
                    name = Replica(broker, partition)
                    raise CommandFailed(f"{name} to {wanted[partition]}: {refusal_text(error)}")

    def _alive(self) -> list[int]:
        """Return the brokers that may have throttles and that can be asked."""
        alive = self.client.metadata(()).brokers
        return [each for each in self.file.brokers if each in alive]


def moving_replicas(client: WireClient) -> int:
    """Return the number of moves that are under way in a cluster, whoever began them.

    Raises:
        ApiError, ClientError: the cluster refused, or could not be asked.
    """
    return len(list_reassignments(client)) + len(places_of(client).futures)
