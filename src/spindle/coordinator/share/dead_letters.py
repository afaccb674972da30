"""Dead letters of share groups (KIP-1191): which topic may get them, and what they contain."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from spindle.common.ports import Bytes
from spindle.coordinator.share.share_partition import DeadLetterRange
from spindle.protocol.records.batch import HEADER_BYTES
from spindle.protocol.records.builder import SimpleRecord
from spindle.protocol.records.record import RecordHeaders, encode_record

_REJECTED: Final = b"Offset rejected by client."
_DELIVERED_TOO_OFTEN: Final = b"Offset delivery count exceeded the threshold."
_INTERNAL_PREFIX: Final = "__"


class DeadLetterConfig(NamedTuple):
    """Where the dead letters of one share group go."""

    topic: str
    """`errors.deadletterqueue.topic.name`, not empty."""
    copies_records: bool
    """`errors.deadletterqueue.copy.record.enable`: write key and value, not only headers."""


class DeadLetterSource(NamedTuple):
    """Where dead letters come from."""

    group_id: str
    topic: str
    partition: int


class DeadLetterTopic(NamedTuple):
    """A dead-letter topic, and the settings by which it may get dead letters.

    Attributes:
        accepts: `errors.deadletterqueue.group.enable` of the topic; None if it does not exist.
        prefix: `errors.deadletterqueue.topic.name.prefix`.
        may_create: `errors.deadletterqueue.auto.create.topics.enable`.
    """

    name: str
    accepts: bool | None
    prefix: str
    may_create: bool


def refusal(topic: DeadLetterTopic) -> str | None:
    """Return why the topic may not get dead letters; None if it may, or may be created for them.

    The checks protect topics of applications, because a broker writes to all topics.
    """
    if topic.name.startswith(_INTERNAL_PREFIX):
        return f"the dead-letter topic {topic.name} must not begin with {_INTERNAL_PREFIX}"
    if topic.accepts is False:
        return (
            f"the dead-letter topic {topic.name} must have errors.deadletterqueue.group.enable=true"
        )
    if not topic.name.startswith(topic.prefix):
        return (
            f"the dead-letter topic {topic.name} must begin with {topic.prefix}, the value of "
            "errors.deadletterqueue.topic.name.prefix"
        )
    if topic.accepts is None and not topic.may_create:
        return (
            f"the dead-letter topic {topic.name} does not exist, and "
            "errors.deadletterqueue.auto.create.topics.enable is false"
        )
    return None


def letter_headers(
    source: DeadLetterSource, offset: int, delivery_count: int, *, is_rejected: bool
) -> RecordHeaders:
    """Return the headers of a dead letter, whose values are UTF-8 text."""
    return (
        ("__dlq.errors.topic", source.topic.encode()),
        ("__dlq.errors.partition", b"%d" % source.partition),
        ("__dlq.errors.offset", b"%d" % offset),
        ("__dlq.errors.group", source.group_id.encode()),
        ("__dlq.errors.delivery.count", b"%d" % delivery_count),
        ("__dlq.errors.message", _REJECTED if is_rejected else _DELIVERED_TOO_OFTEN),
    )


def fitting_letters(
    source: DeadLetterSource,
    letters: DeadLetterRange,
    copied: Mapping[int, tuple[Bytes | None, Bytes | None]],
    max_batch_bytes: int,
    now_ms: int,
) -> list[SimpleRecord]:
    """Return dead letters from the first offset on that fit into one batch, at least one.

    A record that does not even fit alone gets a dead letter without key and value: otherwise it and
    those behind it would have none.

    Args:
        copied: key and value of records by offset; others have neither.
        max_batch_bytes: `max.message.bytes` of the dead-letter topic.
    """
    fitting: list[SimpleRecord] = []
    size_bytes = HEADER_BYTES
    for offset in range(letters.first_offset, letters.last_offset + 1):
        headers = letter_headers(
            source, offset, letters.delivery_count, is_rejected=letters.is_rejected
        )
        key, value = copied.get(offset, (None, None))
        record_bytes = len(encode_record(len(fitting), 0, key, value, headers))
        if HEADER_BYTES + record_bytes > max_batch_bytes:
            key = value = None
            record_bytes = len(encode_record(len(fitting), 0, key, value, headers))
        size_bytes += record_bytes
        if fitting and size_bytes > max_batch_bytes:
            break
        fitting.append(SimpleRecord(key, value, now_ms, headers))
    return fitting
