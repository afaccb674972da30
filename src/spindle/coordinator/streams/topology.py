"""The tasks of a topology, and the internal topics that it needs (KIP-1071).

A subtopology has one task for each partition of its input topics. Topics between subtopologies
(repartition topics) and the logs of state stores (changelog topics) belong to the group: the broker
creates them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

from spindle.metadata.topics import TopicsImage
from spindle.protocol.messages.other_group_records import StreamsGroupTopologyValue

_MAX_NAMED_TOPICS: Final = 3
_DEFAULT: Final = -1
"""Replication factor of a topic that has the cluster's default."""

Subtopology: TypeAlias = StreamsGroupTopologyValue.Subtopology
TopicInfo: TypeAlias = StreamsGroupTopologyValue.Subtopology.TopicInfo
_Counts: TypeAlias = dict[str, int]


class StreamsStatus(IntEnum):
    """Codes in the status of a heartbeat's response."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5


class StatusLine(NamedTuple):
    """A status and its text."""

    code: StreamsStatus
    detail: str


class InternalTopic(NamedTuple):
    """A topic that the broker creates; a replication factor of -1 is the cluster's default."""

    name: str
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ConfiguredTopology:
    """A topology with the present topics of the cluster.

    Attributes:
        epoch: version of the topology.
        task_counts: number of tasks by subtopology, sorted; empty if a topic is wrong or missing.
        partition_counts: partitions of internal topics by name.
        missing: internal topics that do not exist.
        problem: why no task can be assigned; None if tasks can be.
    """

    epoch: int
    task_counts: Mapping[str, int]
    partition_counts: Mapping[str, int]
    missing: Sequence[InternalTopic]
    problem: StatusLine | None

    @property
    def is_ready(self) -> bool:
        return self.problem is None


class _WrongTopics(Exception):
    def __init__(self, code: StreamsStatus, detail: str) -> None:
        super().__init__(detail)
        self.line = StatusLine(code, detail)


def required_topics(topology: StreamsGroupTopologyValue) -> frozenset[str]:
    """Return all topics that a topology reads or keeps state in."""
    return frozenset(
        name
        for subtopology in topology.subtopologies
        for name in (
            *input_topics(subtopology),
            *(topic.name for topic in subtopology.state_changelog_topics),
        )
    )


def input_topics(subtopology: Subtopology) -> Iterator[str]:
    """Yield the topics whose partitions make the tasks of a subtopology."""
    yield from subtopology.source_topics
    yield from (topic.name for topic in subtopology.repartition_source_topics)


def configure(topology: StreamsGroupTopologyValue, topics: TopicsImage) -> ConfiguredTopology:
    """Compute the tasks and the missing internal topics of a topology."""
    try:
        counts = _decide_counts(topology, topics)
        tasks = _task_counts(topology.subtopologies, topics, counts)
        missing = _missing_topics(topology.subtopologies, topics, counts)
    except _WrongTopics as error:
        return ConfiguredTopology(topology.epoch, {}, {}, (), error.line)
    problem = None
    if missing:
        names = _some([topic.name for topic in missing])
        problem = StatusLine(
            StreamsStatus.MISSING_INTERNAL_TOPICS, f"Internal topics are missing: {names}"
        )
    return ConfiguredTopology(topology.epoch, tasks, counts, missing, problem)


def _some(names: Sequence[str]) -> str:
    more = len(names) - _MAX_NAMED_TOPICS
    text = ", ".join(names[:_MAX_NAMED_TOPICS])
    return text + (f" and {more} additional topics" if more > 0 else "")


def _count(name: str, topics: TopicsImage, counts: _Counts) -> int | None:
    topic = topics.by_name.get(name)
    return counts.get(name) if topic is None else len(topic.partitions)


def _decide_counts(topology: StreamsGroupTopologyValue, topics: TopicsImage) -> _Counts:
    """Return the partitions of each internal topic."""
    subtopologies = topology.subtopologies
    missing = sorted(
        {
            name
            for subtopology in subtopologies
            for name in subtopology.source_topics
            if name not in topics.by_name
        }
    )
    if missing:
        raise _WrongTopics(
            StreamsStatus.MISSING_SOURCE_TOPICS, f"Source topics {_some(missing)} are missing."
        )
    counts = _repartition_counts(subtopologies, topics)
    for subtopology in subtopologies:
        for group in subtopology.copartition_groups:
            _enforce_copartition(_group_names(subtopology, group), topology, topics, counts)
    for subtopology in subtopologies:
        partitions = _max_count(input_topics(subtopology), topics, counts)
        counts |= {topic.name: partitions for topic in subtopology.state_changelog_topics}
    return counts


def _repartition_counts(subtopologies: Iterable[Subtopology], topics: TopicsImage) -> _Counts:
    """Return the partitions of repartition topics.

    One without a number of its own has as many as the largest input of the subtopologies that
    write to it; such an input may be a repartition topic itself.
    """
    counts: _Counts = {}
    open_names: dict[str, None] = {}
    writers: dict[str, list[Subtopology]] = {}
    for subtopology in subtopologies:
        for name in subtopology.repartition_sink_topics:
            writers.setdefault(name, []).append(subtopology)
        for topic in subtopology.repartition_source_topics:
            if topic.partitions:
                counts[topic.name] = topic.partitions
            else:
                open_names[topic.name] = None
    while open_names:
        decided = {}
        for name in open_names:
            known = [
                count
                for writer in writers.get(name, ())
                for source in input_topics(writer)
                if (count := counts.get(source) or _count(source, topics, counts)) is not None
                and source not in open_names
            ]
            if known:
                decided[name] = max(known)
        if not decided:
            raise _WrongTopics(
                StreamsStatus.MISSING_SOURCE_TOPICS,
                "Failed to compute number of partitions for all repartition topics, make sure all "
                "user input topics are created and all Pattern subscriptions match at least one "
                "topic in the cluster",
            )
        counts |= decided
        open_names = {name: None for name in open_names if name not in decided}
    return counts


def _group_names(subtopology: Subtopology, group: Subtopology.CopartitionGroup) -> list[str]:
    sources, repartition = subtopology.source_topics, subtopology.repartition_source_topics
    return [
        *(sources[index] for index in group.source_topics),
        *(repartition[index].name for index in group.repartition_source_topics),
    ]


def _enforce_copartition(
    names: Sequence[str],
    topology: StreamsGroupTopologyValue,
    topics: TopicsImage,
    counts: _Counts,
) -> None:
    """Give the topics of a join the same number of partitions, or raise if they cannot have it."""
    fixed = {
        topic.name: topic.partitions
        for subtopology in topology.subtopologies
        for topic in subtopology.repartition_source_topics
        if topic.partitions and topic.name in names
    }
    sources = {
        name: len(topics.by_name[name].partitions)
        for name in names
        if name not in counts and name in topics.by_name
    }
    given = sources or fixed
    if len(set(given.values())) > 1:
        kind = (
            "Topics not co-partitioned"
            if sources
            else ("Following topics do not have the same number of partitions")
        )
        raise _WrongTopics(
            StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS, f"{kind}: {dict(sorted(given.items()))}"
        )
    if given:
        partitions = next(iter(given.values()))
    else:
        partitions = max((counts[name] for name in names if name in counts), default=0)
    for name in names:
        if fixed.get(name, partitions) != partitions:
            raise _WrongTopics(
                StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS,
                f"Number of partitions [{fixed[name]}] of repartition topic [{name}] doesn't match "
                f"number of partitions [{partitions}] of the source topic.",
            )
        if name in counts:
            counts[name] = partitions


def _max_count(names: Iterable[str], topics: TopicsImage, counts: _Counts) -> int:
    known = (counts.get(name) or _count(name, topics, counts) for name in names)
    return max((count for count in known if count is not None), default=0)


def _task_counts(
    subtopologies: Iterable[Subtopology], topics: TopicsImage, counts: _Counts
) -> dict[str, int]:
    by_id = {
        subtopology.subtopology_id: _max_count(input_topics(subtopology), topics, counts)
        for subtopology in subtopologies
    }
    return dict(sorted(by_id.items()))


def _missing_topics(
    subtopologies: Iterable[Subtopology], topics: TopicsImage, counts: _Counts
) -> list[InternalTopic]:
    """Return internal topics to create; one that exists must have the right partitions."""
    missing: dict[str, InternalTopic] = {}
    for subtopology in subtopologies:
        for topic in (
            *subtopology.repartition_source_topics,
            *subtopology.state_changelog_topics,
        ):
            existing = topics.by_name.get(topic.name)
            if existing is None:
                missing[topic.name] = InternalTopic(
                    topic.name,
                    counts[topic.name],
                    topic.replication_factor or _DEFAULT,
                    {config.key: config.value for config in topic.topic_configs},
                )
            elif topic.name not in subtopology.source_topics and (
                len(existing.partitions) != counts[topic.name]
            ):
                raise _WrongTopics(
                    StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS,
                    f"Existing topic {topic.name} has different number of partitions: expected "
                    f"{counts[topic.name]}, found {len(existing.partitions)}",
                )
    return [missing[name] for name in sorted(missing)]
