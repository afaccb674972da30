"""The bytes that consumers of the classic protocol put into JoinGroup and get from SyncGroup.

They begin with a version. A version above the known ones is read as the newest known one.
"""

from collections.abc import Sequence
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

from spindle.common.errors import ProtocolViolation
from spindle.common.uuids import Uuid
from spindle.coordinator.consumer.member import Partitions
from spindle.metadata.topics import TopicsImage
from spindle.protocol.codec import decode, encode
from spindle.protocol.messages.group_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)

_VERSION: Final = Struct(">h")
_NAMED: Final = ConsumerProtocolAssignment.TopicPartition


class EmbeddedSubscription(NamedTuple):
    """The subscription of a member of the classic protocol, and the partitions that it owns."""

    topic_names: frozenset[str]
    owned: Partitions
    rack_id: str | None


def read_subscription(metadata: bytes, topics: TopicsImage) -> EmbeddedSubscription:
    """Return a member's subscription; topics that do not exist own nothing.

    Raises:
        ProtocolViolation: the bytes are no subscription.
    """
    version = _version_of(metadata, ConsumerProtocolSubscription.LAST_VERSION)
    stored, _ = decode(ConsumerProtocolSubscription, version, metadata, _VERSION.size)
    owned = [(topic.topic, topic.partitions) for topic in stored.owned_partitions]
    return EmbeddedSubscription(
        frozenset(stored.topics), _by_id(owned, topics), stored.rack_id or None
    )


def read_assignment(assignment: bytes, topics: TopicsImage) -> Partitions | None:
    """Return the partitions that a member was assigned; None if they come with user data.

    Raises:
        ProtocolViolation: the bytes are no assignment.
    """
    if not assignment:
        return {}
    version = _version_of(assignment, ConsumerProtocolAssignment.LAST_VERSION)
    stored, _ = decode(ConsumerProtocolAssignment, version, assignment, _VERSION.size)
    if stored.user_data:
        return None
    return _by_id([(topic.topic, topic.partitions) for topic in stored.assigned_partitions], topics)


def write_assignment(partitions: Partitions, topics: TopicsImage, metadata: bytes) -> bytes:
    """Return an assignment in the version of the member's subscription; 0 if that has none."""
    try:
        version = _version_of(metadata, ConsumerProtocolAssignment.LAST_VERSION)
    except ProtocolViolation:
        version = ConsumerProtocolAssignment.FIRST_VERSION
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[
            _NAMED(topic=topics.by_id[topic_id].name, partitions=sorted(indexes))
            for topic_id, indexes in partitions.items()
            if topic_id in topics.by_id
        ]
    )
    return _VERSION.pack(version) + encode(assignment, version)


def _version_of(data: bytes, last_version: int) -> int:
    try:
        (version,) = _VERSION.unpack_from(data)
    except StructError:
        raise ProtocolViolation("the bytes of the consumer protocol have no version") from None
    if version < 0:
        raise ProtocolViolation(f"version {version} of the consumer protocol is negative")
    return min(int(version), last_version)


def _by_id(
    named: Sequence[tuple[str, Sequence[int]]], topics: TopicsImage
) -> dict[Uuid, frozenset[int]]:
    owned: dict[Uuid, frozenset[int]] = {}
    for name, partitions in named:
        topic = topics.by_name.get(name)
        if topic is not None and partitions:
            owned[topic.topic_id] = owned.get(topic.topic_id, frozenset()) | frozenset(partitions)
    return owned
