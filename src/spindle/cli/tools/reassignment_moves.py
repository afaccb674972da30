"""Moves of replicas between the directories of their broker (KIP-113)."""

import time
from collections.abc import Mapping
from typing import Final

import click

from spindle.cli.tools.failures import TERSE, ToolFailed
from spindle.cli.tools.json_file import COMMAND
from spindle.client.admin.partitions import move_replicas
from spindle.client.admin.refusals import exception_text
from spindle.client.blocking.client import WireClient
from spindle.common.errors import ErrorCode
from spindle.operations.deletions import deleted_bytes_of
from spindle.operations.reassignment import Plan, Replica, ReplicaPlaces

_PAUSE_S: Final = 0.1
_MS: Final = 1000


def active_moves(targets: Mapping[Replica, str], places: ReplicaPlaces) -> dict[Replica, str]:
    """Return the replicas that move now, with the directory that they leave."""
    return {
        replica: places.directories[replica]
        for replica in targets
        if replica in places.futures and replica in places.directories
    }


def move_lines(targets: Mapping[Replica, str], places: ReplicaPlaces) -> list[str]:
    """Return a line about the progress of each move."""
    return [_move_line(replica, target, places) for replica, target in targets.items()]


def _move_line(replica: Replica, target: str, places: ReplicaPlaces) -> str:
    partition, broker = replica.partition, replica.broker
    current, future = places.directories.get(replica), places.futures.get(replica)
    if current is None:
        return (
            f"Partition {partition} is not found in any live log dir on broker {broker}. There is "
            "likely an offline log directory on the broker."
        )
    if future == target:
        return f"Reassignment of replica {replica} is still in progress."
    if future is not None:
        return (
            f"Partition {partition} on broker {broker} is being moved to log dir {future} instead "
            f"of {target}."
        )
    if current == target:
        return f"Reassignment of replica {replica} completed successfully."
    return (
        f"Partition {partition} on broker {broker} is not being moved from log dir {current} to "
        f"{target}."
    )


def start_moves(client: WireClient, targets: Mapping[Replica, str], timeout_ms: int) -> None:
    """Start the moves at the brokers; retry for a replica that does not exist yet.

    Raises:
        ToolFailed: a broker refused, or the timeout has passed.
        ClientError: a broker could not be asked.
    """
    waiting = dict(targets)
    deadline = time.monotonic() + timeout_ms / _MS
    while waiting:
        for broker in sorted({replica.broker for replica in waiting}):
            _start_on(client, broker, waiting)
        if not waiting:
            return
        if time.monotonic() >= deadline:
            names = ",".join(map(str, sorted(waiting)))
            plural = "" if len(waiting) == 1 else "s"
            raise ToolFailed(
                f"Timed out before log directory move{plural} could be started for: {names}",
                TERSE,
            )
        time.sleep(_PAUSE_S)


def _start_on(client: WireClient, broker: int, waiting: dict[Replica, str]) -> None:
    wanted = {r.partition: path for r, path in waiting.items() if r.broker == broker}
    for partition, error in sorted(move_replicas(client, broker, wanted).items()):
        replica = Replica(broker, partition)
        if error is None:
            click.echo(
                f"Successfully started moving log directory to {waiting.pop(replica)} for replica "
                f"{partition} with broker {broker} "
            )
        elif error.code is not ErrorCode.REPLICA_NOT_AVAILABLE:
            raise ToolFailed(f"Failed to alter dir for {replica}: {exception_text(error)}", COMMAND)


def await_deletions(client: WireClient, plan: Plan) -> None:
    """Wait until replicas deleted before this plan have freed the space that it needs.

    Brokers of Kafka do not report deletions: for them the wait lasts for all of `wait_ms`.

    Raises:
        ClientError: a broker could not be asked.
    """
    deadline = time.monotonic() + plan.wait_ms / _MS
    is_reported = False
    while (left_s := deadline - time.monotonic()) > 0 and _may_have_deletions(client, plan):
        if not is_reported:
            click.echo(
                f"waiting up to {left_s:.0f} s: deleted replicas still use the space that these "
                "moves need",
                err=True,
            )
            is_reported = True
        time.sleep(min(left_s, 1.0))


def _may_have_deletions(client: WireClient, plan: Plan) -> bool:
    brokers = client.metadata(()).brokers
    targets = {(replica.broker, path) for replica, path in plan.directories.items()}
    for broker_id in sorted({broker for broker, _ in targets}.intersection(brokers)):
        reported = deleted_bytes_of(client, brokers[broker_id])
        if reported is None:
            return True
        if any(reported.get(path, 0) for broker, path in targets if broker == broker_id):
            return True
    return False
