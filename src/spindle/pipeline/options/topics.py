"""The topics that a read selects: `assign`, `subscribe` or `subscribePattern`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from spindle.common.ids import INTERNAL_TOPICS, METADATA_TOPIC, TopicPartition
from spindle.pipeline.options.values import MAX_INT, json_object

SELECTIONS: Final = ("assign", "subscribe", "subscribePattern")
_EXAMPLE: Final = '{"topicA": [0, 1]}'
_NOT_BY_PATTERN: Final = INTERNAL_TOPICS | {METADATA_TOPIC}


@dataclass(frozen=True, slots=True)
class Assign:
    """A selection of single partitions, sorted."""

    partitions: tuple[TopicPartition, ...]

    def wants(self, partition: TopicPartition) -> bool:
        return partition in self.partitions


@dataclass(frozen=True, slots=True)
class Subscribe:
    """A selection of topics with all their partitions."""

    topics: tuple[str, ...]

    def wants(self, partition: TopicPartition) -> bool:
        return partition.topic in self.topics


@dataclass(frozen=True, slots=True)
class SubscribePattern:
    """A selection of all topics in whose name the pattern is found, without internal topics.

    The metadata log is no topic to a client, so a pattern does not select it either.
    """

    pattern: str

    def wants(self, partition: TopicPartition) -> bool:
        if partition.topic in _NOT_BY_PATTERN:
            return False
        return re.search(self.pattern, partition.topic) is not None


Selection: TypeAlias = Assign | Subscribe | SubscribePattern


def topic_selection(options: Mapping[str, str]) -> Selection:
    """Return the selection of a read.

    Args:
        options: with names in lower case.

    Raises:
        ValueError: none or several of the options, or one that selects nothing.
    """
    present = [name for name in SELECTIONS if name.lower() in options]
    if len(present) != 1:
        given = " and ".join(present) or "none"
        raise ValueError(f"want exactly one of the options {', '.join(SELECTIONS)}; got {given}")
    name = present[0]
    text = options[name.lower()]
    match name:
        case "assign":
            return Assign(_assigned(text))
        case "subscribe":
            topics = tuple(dict.fromkeys(t.strip() for t in text.split(",") if t.strip()))
            if not topics:
                raise ValueError(f"option subscribe: no topic in {text!r}")
            return Subscribe(topics)
        case _:
            return SubscribePattern(_pattern(text.strip()))


def _assigned(text: str) -> tuple[TopicPartition, ...]:
    partitions = set()
    for topic, numbers in json_object("assign", text, _EXAMPLE).items():
        if not isinstance(numbers, list):
            raise ValueError(f"option assign: want JSON like {_EXAMPLE}, got {text!r}")
        for number in numbers:
            if not _is_partition(number):
                raise ValueError(
                    f"option assign: {topic} has partition {number!r}, want an integer from 0 to "
                    f"{MAX_INT}"
                )
            partitions.add(TopicPartition(topic, number))
    if not partitions:
        raise ValueError(f"option assign: no partition in {text!r}, want JSON like {_EXAMPLE}")
    return tuple(sorted(partitions))


def _is_partition(value: Any) -> bool:
    return type(value) is int and 0 <= value <= MAX_INT


def _pattern(text: str) -> str:
    if not text:
        raise ValueError("option subscribePattern is empty, want a regular expression")
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(
            f"option subscribePattern: {text!r} is not a regular expression: {error}"
        ) from None
    return text
