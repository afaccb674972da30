"""Limits on the traffic of reassignments: set when a plan begins, removed when it is done."""

from collections.abc import Mapping, Sequence

import click

from spindle.client.blocking.client import WireClient
from spindle.common.ids import TopicPartition
from spindle.operations.reassignment import Plan
from spindle.operations.throttles import (
    BETWEEN_BROKERS,
    BETWEEN_DIRECTORIES,
    remove_throttles,
    throttle_brokers,
    throttle_topics,
)


def set_throttles(
    client: WireClient,
    plan: Plan,
    current: Mapping[TopicPartition, Sequence[int]],
    *,
    between_brokers: int | None,
    between_directories: int | None,
) -> None:
    """Set the requested limits, in bytes per second, and print them.

    Raises:
        ApiError: the cluster refused.
        ClientError: no broker could be asked.
    """
    if between_brokers is None and between_directories is None:
        return
    click.echo(
        "Warning: You must run --verify periodically, until the reassignment completes, to ensure "
        "the throttle is removed."
    )
    if between_brokers is not None:
        throttle_topics(client, plan, current)
        involved = {b for p, brokers in plan.replicas.items() for b in (*brokers, *current[p])}
        throttle_brokers(client, sorted(involved), BETWEEN_BROKERS, between_brokers)
        click.echo(f"The inter-broker throttle limit was set to {between_brokers} B/s")
    if between_directories is not None:
        moving = sorted({replica.broker for replica in plan.directories})
        throttle_brokers(client, moving, BETWEEN_DIRECTORIES, between_directories)
        click.echo(f"The replica-alter-dir throttle limit was set to {between_directories} B/s")


def clear_throttles(client: WireClient, plan: Plan) -> None:
    """Remove the limits of all brokers and of the plan's topics, and print their names.

    Raises:
        ApiError: the cluster refused.
        ClientError: no broker could be asked.
    """
    alive = client.metadata(()).brokers
    brokers = sorted({*alive, *(b for replica in plan.replicas.values() for b in replica)})
    names = ",".join(map(str, brokers))
    click.echo(f"Clearing broker-level throttles on broker{_plural(brokers)} {names}")
    topics = sorted({partition.topic for partition in plan.replicas})
    click.echo(f"Clearing topic-level throttles on topic{_plural(topics)} {','.join(topics)}")
    remove_throttles(client, [broker for broker in brokers if broker in alive], topics)


def _plural(things: Sequence[object]) -> str:
    return "" if len(things) == 1 else "s"
