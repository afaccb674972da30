"""The topics of a group: regular expressions, and a hash that shows when a topic has changed."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from spindle.common.errors import ApiError
from spindle.coordinator.regular_expressions import compile_regex
from spindle.metadata.topics import TopicImage, TopicsImage

REFRESH_MIN_MS: Final = 10_000
"""Minimum time between two comparisons of a group's regular expressions with the metadata."""
_HASH_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class TopicsView:
    """The topics of the cluster, as of an offset of the metadata log.

    Attributes:
        may_describe: whether a regular expression of the member may match a topic; None: it may
            match all.
    """

    topics: TopicsImage
    metadata_offset: int
    may_describe: Callable[[str], bool] | None = None

    def matching(self, regexes: Iterable[str]) -> dict[str, frozenset[str]]:
        """Return the topics that match each expression."""
        topics = topics_matching(regexes, self.topics)
        if self.may_describe is None:
            return topics
        return {
            regex: frozenset(filter(self.may_describe, names)) for regex, names in topics.items()
        }


def check_regex(regex: str) -> None:
    """Raise ApiError INVALID_REGULAR_EXPRESSION unless RE2 accepts the expression."""
    compile_regex(regex, "SubscribedTopicRegex")


def topics_matching(regexes: Iterable[str], topics: TopicsImage) -> dict[str, frozenset[str]]:
    """Return the topics whose whole name matches, for each expression.

    An expression that another coordinator has accepted and RE2 does not know matches nothing.
    """
    matching = {}
    for regex in regexes:
        try:
            pattern = compile_regex(regex, "SubscribedTopicRegex")
        except ApiError:
            matching[regex] = frozenset[str]()
            continue
        matching[regex] = frozenset(name for name in topics.by_name if pattern.fullmatch(name))
    return matching


def hash_of_topics(topics: Iterable[TopicImage]) -> int:
    """Return a signed 64-bit number that differs when a topic or its partition count does.

    0 stands for no topics. The number is not the one of Apache Kafka, so a group whose coordinator
    moves from one to the other gets a new epoch once.
    """
    ordered = sorted(topics, key=lambda topic: topic.name)
    if not ordered:
        return 0
    digest = blake2b(digest_size=_HASH_BYTES)
    for topic in ordered:
        digest.update(topic.topic_id)
        digest.update(len(topic.partitions).to_bytes(4, "big"))
        digest.update(topic.name.encode() + b"\0")
    return int.from_bytes(digest.digest(), "big", signed=True)


def existing(names: Iterable[str], topics: TopicsImage) -> Mapping[str, TopicImage]:
    """Return the topics that exist, by name, in the order of the names."""
    by_name = topics.by_name
    return {name: by_name[name] for name in sorted(names) if name in by_name}
