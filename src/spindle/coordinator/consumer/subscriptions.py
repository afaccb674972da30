"""The topics of a group: regular expressions, and a hash that shows when a topic has changed."""

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Final

from spindle.common.errors import ApiError
from spindle.coordinator.regular_expressions import compile_regex
from spindle.metadata.topics import TopicImage, TopicsImage

REFRESH_MIN_MS: Final = 10_000
"""Time between two comparisons of a group's regular expressions with changed metadata."""
_HASH_BYTES: Final = 8


def check_regex(regex: str) -> None:
    """Raise ApiError INVALID_REGULAR_EXPRESSION unless RE2 accepts the expression."""
    compile_regex(regex, "SubscribedTopicRegex")


def topics_matching(regexes: Iterable[str], topics: TopicsImage) -> dict[str, frozenset[str]]:
    """Return the topics whose whole name matches, for each expression.

    An expression that another coordinator has accepted and RE2 does not know matches nothing.
    """
    found = {}
    for regex in regexes:
        try:
            pattern = compile_regex(regex, "SubscribedTopicRegex")
        except ApiError:
            found[regex] = frozenset[str]()
            continue
        found[regex] = frozenset(name for name in topics.by_name if pattern.fullmatch(name))
    return found


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
    found = {name: topics.by_name.get(name) for name in sorted(names)}
    return {name: topic for name, topic in found.items() if topic is not None}
