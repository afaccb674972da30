"""Throttles of moves: rates of brokers, and the throttled replicas of topics (KIP-73).

An execution adds its own entries to a topic, and removes only these: another execution may throttle
other replicas of the same topic at the same time.
"""

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from spindle.client.admin import configs
from spindle.client.blocking.client import WireClient
from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicPartition
from spindle.config.resources import ConfigResourceType
from spindle.operations.reassignment import Plan

BETWEEN_BROKERS: Final = (
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
)
BETWEEN_DIRECTORIES: Final = ("replica.alter.log.dirs.io.max.bytes.per.second",)
_LEADERS: Final = "leader.replication.throttled.replicas"
_FOLLOWERS: Final = "follower.replication.throttled.replicas"

ThrottledReplicas = dict[str, dict[str, list[str]]]
"""Entries such as `0:1` (partition 0 on broker 1), by topic and by key of its configuration."""

_EVERY_REPLICA: Final = "*"
_GONE_S: Final = 5.0
"""Time for a broker to learn the removal of entries."""
_PAUSE_S: Final = 0.1


def throttle_topics(
    client: WireClient, plan: Plan, current: Mapping[TopicPartition, Sequence[int]]
) -> None:
    """Add the replicas that move to other brokers to the throttled replicas of their topics.

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
        ApiError: the cluster refused, or a broker is not registered now.
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


def wanted_entries(
    client: WireClient, plan: Plan, current: Mapping[TopicPartition, tuple[int, ...]]
) -> ThrottledReplicas:
    """Return the entries for the partitions whose replicas move to other brokers.

    A topic all of whose replicas are throttled already needs none.

    Raises:
        ApiError: the cluster refused.
        ClientError: no broker could be asked.
    """
    between = {p: brokers for p, brokers in plan.replicas.items() if current[p] != brokers}
    wanted_entries: ThrottledReplicas = {}
    for topic, settings in throttled_replicas(Plan(between), current).items():
        known = _own_values(client, topic, list(settings))
        wanted_entries[topic] = {
            key: text.split(",")
            for key, text in settings.items()
            if text and _EVERY_REPLICA not in known.get(key, [])
        }
    return wanted_entries


def with_entries(one: ThrottledReplicas, other: ThrottledReplicas) -> ThrottledReplicas:
    """Return the entries of both."""
    return {
        topic: {
            key: sorted({*one.get(topic, {}).get(key, []), *other.get(topic, {}).get(key, [])})
            for key in {**one.get(topic, {}), **other.get(topic, {})}
        }
        for topic in {**one, **other}
    }


def without_entries(one: ThrottledReplicas, other: ThrottledReplicas) -> ThrottledReplicas:
    """Return the entries of the first that are not in the second."""
    return {
        topic: {
            key: left
            for key, entries in by_key.items()
            if (
                left := [
                    entry for entry in entries if entry not in other.get(topic, {}).get(key, [])
                ]
            )
        }
        for topic, by_key in one.items()
    }


def entries_of(
    entries: ThrottledReplicas, partitions: Collection[TopicPartition]
) -> ThrottledReplicas:
    """Return the entries of some partitions."""
    own_entries: ThrottledReplicas = {}
    for topic, by_key in entries.items():
        numbers = {str(partition.partition) for partition in partitions if partition.topic == topic}
        own = {
            key: [entry for entry in listed if entry.partition(":")[0] in numbers]
            for key, listed in by_key.items()
        }
        if any(own.values()):
            own_entries[topic] = {key: listed for key, listed in own.items() if listed}
    return own_entries


def add_entries(client: WireClient, entries: ThrottledReplicas) -> None:
    """Add entries to the throttled replicas of topics. A deleted topic is skipped.

    Raises:
        ApiError: the cluster refused.
        ClientError: no broker could be asked.
    """
    for topic, by_key in entries.items():
        appended = {key: ",".join(listed) for key, listed in by_key.items()}
        if appended:
            with _deleted_topic_ignored():
                configs.alter(client, ConfigResourceType.TOPIC, topic, {}, (), appended=appended)


def remove_entries(client: WireClient, entries: ThrottledReplicas) -> None:
    """Remove entries; those of others stay. A deleted topic is skipped.

    Raises:
        ApiError: the cluster refused.
        ClientError: no broker could be asked.
    """
    for topic, by_key in entries.items():
        if by_key:
            with _deleted_topic_ignored():
                _remove(client, topic, by_key)


@contextmanager
def _deleted_topic_ignored() -> Iterator[None]:
    try:
        yield
    except ApiError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise


def _remove(client: WireClient, topic: str, by_key: Mapping[str, list[str]]) -> None:
    subtracted = {key: ",".join(listed) for key, listed in by_key.items()}
    configs.alter(client, ConfigResourceType.TOPIC, topic, {}, (), subtracted=subtracted)
    deadline = time.monotonic() + _GONE_S
    while True:
        known = _own_values(client, topic, list(by_key))
        stale = [key for key, listed in by_key.items() if set(listed) & set(known.get(key, []))]
        if not stale or time.monotonic() >= deadline:
            break
        time.sleep(_PAUSE_S)
    # Other executions append to the value, so an empty value belongs to none of them.
    empty = [key for key in by_key if key in known and not known[key]]
    if empty:
        configs.alter(client, ConfigResourceType.TOPIC, topic, {}, empty)


def _own_values(client: WireClient, topic: str, keys: list[str]) -> dict[str, list[str]]:
    """Return the entries of the keys that are set for the topic itself."""
    return {
        config.name: [entry for entry in (config.value or "").split(",") if entry]
        for config in configs.describe(client, ConfigResourceType.TOPIC, topic, keys)
        if config.source is configs.ReportedSource.DYNAMIC_TOPIC_CONFIG
    }
