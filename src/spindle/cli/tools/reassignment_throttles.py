"""Limits on the traffic of reassignments: set when a plan begins, removed when it is done."""

from collections.abc import Mapping, Sequence
from typing import Final

import click

from spindle.cli.tools.reassignment_plan import Plan
from spindle.client.admin import configs
from spindle.client.wire.cluster import WireClient
from spindle.common.ids import TopicPartition
from spindle.config.resources import ResourceType

_BROKER_RATES: Final = (
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
)
_DIRECTORY_RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
_LEADERS: Final = "leader.replication.throttled.replicas"
_FOLLOWERS: Final = "follower.replication.throttled.replicas"


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
        throttle_between_brokers(client, plan, current, between_brokers)
        click.echo(f"The inter-broker throttle limit was set to {between_brokers} B/s")
    if between_directories is not None:
        throttle_between_directories(client, plan, between_directories)
        click.echo(f"The replica-alter-dir throttle limit was set to {between_directories} B/s")


def throttle_between_brokers(
    client: WireClient,
    plan: Plan,
    current: Mapping[TopicPartition, Sequence[int]],
    bytes_per_second: int,
) -> None:
    """Limit the copies from one broker to another one.

    Raises:
        ApiError: the cluster refused.
        ClientError: no broker could be asked.
    """
    for topic, settings in throttled_replicas(plan, current).items():
        configs.alter(client, ResourceType.TOPIC, topic, settings, ())
    involved = {b for p, brokers in plan.replicas.items() for b in (*brokers, *current[p])}
    for broker in sorted(involved & client.metadata(()).brokers.keys()):
        rates = dict.fromkeys(_BROKER_RATES, str(bytes_per_second))
        configs.alter(client, ResourceType.BROKER, str(broker), rates, ())


def throttle_between_directories(client: WireClient, plan: Plan, bytes_per_second: int) -> None:
    """Limit the copies inside of the brokers of a plan.

    Raises:
        ApiError: the cluster refused.
        ClientError: no broker could be asked.
    """
    for broker in sorted({replica.broker for replica in plan.directories}):
        rates = {_DIRECTORY_RATE: str(bytes_per_second)}
        configs.alter(client, ResourceType.BROKER, str(broker), rates, ())


def throttled_replicas(
    plan: Plan, current: Mapping[TopicPartition, Sequence[int]]
) -> dict[str, dict[str, str]]:
    """Return the settings of each topic: the sending and the receiving replicas as
    partition:broker.
    """
    leaders: dict[str, list[str]] = {}
    followers: dict[str, list[str]] = {}
    for partition, target in plan.replicas.items():
        sources = current[partition]
        topic, number = partition
        leaders.setdefault(topic, []).extend(f"{number}:{broker}" for broker in sources)
        followers.setdefault(topic, []).extend(
            f"{number}:{broker}" for broker in target if broker not in sources
        )
    return {
        topic: {
            _LEADERS: ",".join(sorted(leaders[topic])),
            _FOLLOWERS: ",".join(sorted(followers[topic])),
        }
        for topic in leaders
    }


def clear_throttles(client: WireClient, plan: Plan) -> None:
    """Remove the limits of all brokers and of the plan's topics, and print their names.

    Raises:
        ApiError: the cluster refused.
        ClientError: no broker could be asked.
    """
    alive = client.metadata(()).brokers
    brokers = sorted({*alive, *(b for each in plan.replicas.values() for b in each)})
    names = ",".join(map(str, brokers))
    click.echo(f"Clearing broker-level throttles on broker{_plural(brokers)} {names}")
    topics = sorted({partition.topic for partition in plan.replicas})
    click.echo(f"Clearing topic-level throttles on topic{_plural(topics)} {','.join(topics)}")
    remove_throttles(client, [broker for broker in brokers if broker in alive], topics)


def remove_throttles(client: WireClient, brokers: Sequence[int], topics: Sequence[str]) -> None:
    """Remove the limits of brokers and topics.

    Raises:
        ApiError: the cluster refused.
        ClientError: no broker could be asked.
    """
    for broker in brokers:
        keys = (*_BROKER_RATES, _DIRECTORY_RATE)
        configs.alter(client, ResourceType.BROKER, str(broker), {}, keys)
    for topic in topics:
        configs.alter(client, ResourceType.TOPIC, topic, {}, (_LEADERS, _FOLLOWERS))


def _plural(things: Sequence[object]) -> str:
    return "" if len(things) == 1 else "s"
