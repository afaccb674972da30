"""Records of `__consumer_offsets`: groups of both protocols and offsets, to bytes and back.

A key starts with its type (int16), a value with its version (int16). Values are written at the
versions that Apache Kafka 4.4 writes: offsets 4 (1 if the client asked for its own retention time),
classic groups 3, consumer, share and streams groups 0.
"""

from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple, TypeAlias

from spindle.common.errors import CorruptRecords, ProtocolViolation
from spindle.common.ids import TopicPartition
from spindle.common.uuids import ZERO_UUID, Uuid
from spindle.coordinator.consumer.records import (
    KINDS_WITH_ITEM,
    VALUE_CLASSES,
    ConsumerGroupRecord,
    RecordKind,
)
from spindle.coordinator.share.group_records import (
    SHARE_KINDS_WITH_ITEM,
    SHARE_VALUE_CLASSES,
    ShareGroupRecord,
    ShareRecordKind,
)
from spindle.coordinator.streams.records import (
    STREAMS_KINDS_WITH_ITEM,
    STREAMS_VALUE_CLASSES,
    StreamsGroupRecord,
    StreamsRecordKind,
)
from spindle.protocol.codec import decode, encode
from spindle.protocol.messages.coordinator_records import (
    ConsumerGroupMemberKey,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from spindle.protocol.sentinels import NO_LEADER_EPOCH, NO_TIMESTAMP

OFFSET_COMMIT_TYPE: Final = 1
GROUP_METADATA_TYPE: Final = 2
_LEGACY_OFFSET_COMMIT_TYPE: Final = 0
_OFFSET_VALUE_VERSION: Final = 4
_EXPIRING_OFFSET_VALUE_VERSION: Final = 1
_GROUP_VALUE_VERSION: Final = 3
_CONSUMER_KINDS: Final = frozenset(RecordKind)
_SHARE_KINDS: Final = frozenset(ShareRecordKind)
_STREAMS_KINDS: Final = frozenset(StreamsRecordKind)
_KINDS_WITH_ITEM: Final = frozenset(
    (*KINDS_WITH_ITEM, *SHARE_KINDS_WITH_ITEM, *STREAMS_KINDS_WITH_ITEM)
)
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_TYPE_AND_LENGTH: Final = Struct(">hh")
_PLAIN_OFFSET_VALUE: Final = Struct(">hqiBqBBB16s")

_CONSUMER_VALUE_VERSION: Final = 0


class CommittedOffset(NamedTuple):
    """A position that a group stored for one partition.

    `record_offset` is the offset of the record in the log (-1 before it is appended).
    `leader_epoch` is -1 and `topic_id` zero if the client sent none. `expire_timestamp_ms` is -1
    unless an old client asked for its own retention time.
    """

    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    commit_timestamp_ms: int = NO_TIMESTAMP
    expire_timestamp_ms: int = NO_TIMESTAMP
    topic_id: Uuid = ZERO_UUID
    record_offset: int = -1


class OffsetRecord(NamedTuple):
    """Key and value of a committed offset; None is a tombstone."""

    group_id: str
    partition: TopicPartition
    committed: CommittedOffset | None


class GroupRecord(NamedTuple):
    """Key and value of a classic group's last generation; None is a tombstone."""

    group_id: str
    value: GroupMetadataValue | None


CoordinatorRecord: TypeAlias = (
    OffsetRecord | GroupRecord | ConsumerGroupRecord | ShareGroupRecord | StreamsGroupRecord
)


def encode_record(record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
    """Return key and value as they stand in the log; the value of a tombstone is None."""
    if isinstance(record, GroupRecord):
        key = _INT16.pack(GROUP_METADATA_TYPE) + encode(GroupMetadataKey(group=record.group_id), 2)
        if record.value is None:
            return key, None
        version = _GROUP_VALUE_VERSION
        return key, _INT16.pack(version) + encode(record.value, version)
    if isinstance(record, ConsumerGroupRecord | ShareGroupRecord | StreamsGroupRecord):
        return _encode_modern_group(record)
    group, topic = record.group_id.encode(), record.partition.topic.encode()
    # Offset records are frequent: written by hand, key and value take 2 us instead of 8 through the
    # codec.
    key = b"".join(
        (
            _TYPE_AND_LENGTH.pack(OFFSET_COMMIT_TYPE, len(group)),
            group,
            _INT16.pack(len(topic)),
            topic,
            _INT32.pack(record.partition.partition),
        )
    )
    return key, None if record.committed is None else _encode_offset(record.committed)


def _encode_offset(committed: CommittedOffset) -> bytes:
    version = _OFFSET_VALUE_VERSION
    offset, leader_epoch, metadata, commit_ms, expire_ms, topic_id, _ = committed
    if not metadata and expire_ms == NO_TIMESTAMP and topic_id != ZERO_UUID:
        # The byte 1 is an empty compact string. The topic id is the only tagged field: tag 0, 16
        # bytes.
        return _PLAIN_OFFSET_VALUE.pack(
            version, offset, leader_epoch, 1, commit_ms, 1, 0, 16, topic_id
        )
    if expire_ms != NO_TIMESTAMP:
        version = _EXPIRING_OFFSET_VALUE_VERSION
    value = OffsetCommitValue(
        offset=offset,
        leader_epoch=leader_epoch,
        metadata=metadata,
        commit_timestamp=commit_ms,
        expire_timestamp=expire_ms,
        topic_id=topic_id,
    )
    return _INT16.pack(version) + encode(value, version)


def parse_record(
    key: bytes | None, value: bytes | None, record_offset: int
) -> CoordinatorRecord | None:
    """Parse a key and a value; return None if Spindle does not know the key's type.

    Raises:
        CorruptRecords: key or value cannot be parsed, or have an unknown version.
    """
    if key is None:
        raise CorruptRecords(f"record at offset {record_offset} has no key")
    try:
        (kind,) = _INT16.unpack_from(key)
        if kind in (OFFSET_COMMIT_TYPE, _LEGACY_OFFSET_COMMIT_TYPE):
            offset_key, _ = decode(OffsetCommitKey, 1, key, 2)
            partition = TopicPartition(offset_key.topic, offset_key.partition)
            committed = _parse_offset(value, record_offset)
            return OffsetRecord(offset_key.group, partition, committed)
        if kind == GROUP_METADATA_TYPE:
            group_key, _ = decode(GroupMetadataKey, 2, key, 2)
            return GroupRecord(group_key.group, _parse_group(value, record_offset))
        if kind in _CONSUMER_KINDS:
            return _parse_consumer_group(RecordKind(kind), key, value, record_offset)
        if kind in _SHARE_KINDS:
            return _parse_share_group(ShareRecordKind(kind), key, value, record_offset)
        if kind in _STREAMS_KINDS:
            return _parse_streams_group(StreamsRecordKind(kind), key, value, record_offset)
    except (ProtocolViolation, StructError) as error:
        raise CorruptRecords(f"group record at offset {record_offset}: {error}") from None
    return None


def _encode_modern_group(
    record: ConsumerGroupRecord | ShareGroupRecord | StreamsGroupRecord,
) -> tuple[bytes, bytes | None]:
    if record.kind in _KINDS_WITH_ITEM:
        named = ConsumerGroupMemberKey(group_id=record.group_id, member_id=record.item)
        key = encode(named, 0)
    else:
        key = encode(GroupMetadataKey(group=record.group_id), 2)
    key = _INT16.pack(record.kind) + key
    if record.value is None:
        return key, None
    version = _CONSUMER_VALUE_VERSION
    return key, _INT16.pack(version) + encode(record.value, version)


def _group_and_item(key: bytes, *, has_item: bool) -> tuple[str, str]:
    """Return the group of a key, and its member or expression; empty in a key of the group."""
    if has_item:
        named, _ = decode(ConsumerGroupMemberKey, 0, key, 2)
        return named.group_id, named.member_id
    group_key, _ = decode(GroupMetadataKey, 2, key, 2)
    return group_key.group, ""


def _parse_consumer_group(
    kind: RecordKind, key: bytes, value: bytes | None, record_offset: int
) -> ConsumerGroupRecord | None:
    group_id, record_key = _group_and_item(key, has_item=kind in KINDS_WITH_ITEM)
    if value is None:
        return ConsumerGroupRecord(group_id, kind, record_key, None)
    if kind not in VALUE_CLASSES:
        return None
    version = _value_version(value, _CONSUMER_VALUE_VERSION, record_offset)
    stored, _ = decode(VALUE_CLASSES[kind], version, value, 2)
    return ConsumerGroupRecord(group_id, kind, record_key, stored)


def _parse_share_group(
    kind: ShareRecordKind, key: bytes, value: bytes | None, record_offset: int
) -> ShareGroupRecord:
    group_id, member_id = _group_and_item(key, has_item=kind in SHARE_KINDS_WITH_ITEM)
    if value is None:
        return ShareGroupRecord(group_id, kind, member_id, None)
    version = _value_version(value, _CONSUMER_VALUE_VERSION, record_offset)
    stored, _ = decode(SHARE_VALUE_CLASSES[kind], version, value, 2)
    return ShareGroupRecord(group_id, kind, member_id, stored)


def _parse_streams_group(
    kind: StreamsRecordKind, key: bytes, value: bytes | None, record_offset: int
) -> StreamsGroupRecord:
    group_id, member_id = _group_and_item(key, has_item=kind in STREAMS_KINDS_WITH_ITEM)
    if value is None:
        return StreamsGroupRecord(group_id, kind, member_id, None)
    version = _value_version(value, _CONSUMER_VALUE_VERSION, record_offset)
    stored, _ = decode(STREAMS_VALUE_CLASSES[kind], version, value, 2)
    return StreamsGroupRecord(group_id, kind, member_id, stored)


def _value_version(value: bytes, last_version: int, record_offset: int) -> int:
    (version,) = _INT16.unpack_from(value)
    if not 0 <= version <= last_version:
        raise CorruptRecords(
            f"group record at offset {record_offset} has value version {version}, "
            f"known are 0 to {last_version}"
        )
    return int(version)


def _parse_offset(value: bytes | None, record_offset: int) -> CommittedOffset | None:
    if value is None:
        return None
    if len(value) == _PLAIN_OFFSET_VALUE.size:
        # Try the form that `_encode_offset` writes first: nearly all records have it.
        (version, offset, epoch, text, commit_ms, tags, tag, size, topic_id) = (
            _PLAIN_OFFSET_VALUE.unpack(value)
        )
        if (version, text, tags, tag, size) == (_OFFSET_VALUE_VERSION, 1, 1, 0, 16):
            return CommittedOffset(
                offset, epoch, "", commit_ms, NO_TIMESTAMP, topic_id, record_offset
            )
    version = _value_version(value, OffsetCommitValue.LAST_VERSION, record_offset)
    stored, _ = decode(OffsetCommitValue, version, value, 2)
    return CommittedOffset(
        stored.offset,
        stored.leader_epoch,
        stored.metadata,
        stored.commit_timestamp,
        stored.expire_timestamp,
        stored.topic_id,
        record_offset,
    )


def _parse_group(value: bytes | None, record_offset: int) -> GroupMetadataValue | None:
    if value is None:
        return None
    version = _value_version(value, GroupMetadataValue.LAST_VERSION, record_offset)
    stored, _ = decode(GroupMetadataValue, version, value, 2)
    return stored
