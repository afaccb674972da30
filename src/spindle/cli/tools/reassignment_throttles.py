"""Limits on the traffic of reassignments: set when a plan begins, removed when it is done."""

from collections.abc import Mapping, Sequence
from typing import Final

import click

from spindle.cli.tools.reassignment_plan import Plan
from spindle.client.admin import configs
from spindle.client.blocking.client import WireClient
from spindle.common.ids import TopicPartition
from spindle.config.resources import ConfigResourceType

BETWEEN_BROKERS: Final = (
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
)
BETWEEN_DIRECTORIES: Final = ("replica.alter.log.dirs.io.max.bytes.per.second",)
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
        throttle_topics(client, plan, current)
        involved = {b for p, brokers in plan.replicas.items() for b in (*brokers, *current[p])}
        throttle_brokers(client, sorted(involved), BETWEEN_BROKERS, between_brokers)
        click.echo(f"The inter-broker throttle limit was set to {between_brokers} B/s")
    if between_directories is not None:
        moving = sorted({replica.broker for replica in plan.directories})
        throttle_brokers(client, moving, BETWEEN_DIRECTORIES, between_directories)
        click.echo(f"The replica-alter-dir throttle limit was set to {between_directories} B/s")


def throttle_topics(
    client: WireClient, plan: Plan, current: Mapping[TopicPartition, Sequence[int]]
) -> None:
    """Let the limits of brokers count for the replicas that go to other brokers.

    Raises:
        ApiError: the cluster refused.
        ClientError: no broker could be asked.
    """
    for topic, settings in throttled_replicas(plan, current).items():
        configs.alter(client, ConfigResourceType.TOPIC, topic, settings, ())


def throttle_brokers(
    client: WireClient, brokers: Sequence[int], rates: Sequence[str], bytes_per_second: int
) -> None:
    """Set limits of brokers.

    Args:
        rates: `BETWEEN_BROKERS`, `BETWEEN_DIRECTORIES`, or both.

    Raises:
        ApiError: the cluster refused, or does not know a broker now.
        ClientError: a broker could not be asked.
    """
    for broker in brokers:
        limits = dict.fromkeys(rates, str(bytes_per_second))
        configs.alter(client, ConfigResourceType.BROKER, str(broker), limits, ())


def has_throttle(client: WireClient, broker: int) -> bool:
    """Return True if one of the throttles is set for a broker, in the configuration it uses now.

    Raises:
        ApiError: the broker refused or is not running.
        ClientError: the broker could not be asked.
    """
    keys = (*BETWEEN_BROKERS, *BETWEEN_DIRECTORIES)
    return any(
        config.source is configs.ReportedSource.DYNAMIC_BROKER_CONFIG
        for config in configs.describe(client, ConfigResourceType.BROKER, str(broker), keys)
        if config.name in keys
    )


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
    brokers = sorted({*alive, *(b for replica in plan.replicas.values() for b in replica)})
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
        keys = (*BETWEEN_BROKERS, *BETWEEN_DIRECTORIES)
        configs.alter(client, ConfigResourceType.BROKER, str(broker), {}, keys)
    for topic in topics:
        configs.alter(client, ConfigResourceType.TOPIC, topic, {}, (_LEADERS, _FOLLOWERS))


def _plural(things: Sequence[object]) -> str:
    return "" if len(things) == 1 else "s"
