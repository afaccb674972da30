"""Keys and values of records as `kafka-dump-log` prints them: text, or decoded by their topic."""

from collections.abc import Callable, Mapping
from struct import Struct
from struct import error as StructError
from typing import Any, Final, NamedTuple, TypeAlias

from spindle.cli.tools.failures import ToolFailed
from spindle.cli.tools.message_json import compact, fields_of, frame_json
from spindle.common.errors import CorruptRecords, ProtocolViolation, UnsupportedMetadata
from spindle.common.uuids import Uuid, uuid_text
from spindle.coordinator.transactions.metadata import TransactionState
from spindle.protocol.codec import decode
from spindle.protocol.message import Message
from spindle.protocol.messages.coordinator_records import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupMetadataValue,
    OffsetCommitValue,
    TransactionLogValue,
)
from spindle.protocol.messages.group_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from spindle.protocol.messages.other_group_records import (
    ConsumerGroupPartitionMetadataValue,
    LegacyOffsetCommitValue,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataValue,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTopologyValue,
)
from spindle.protocol.messages.share_group_state_records import (
    ShareSnapshotValue,
    ShareUpdateValue,
)
from spindle.protocol.metadata_frame import parse_frame
from spindle.protocol.records.record import Record

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_UUID_SIZE_BYTES: Final = 16


class FormattedRecord(NamedTuple):
    """The texts of a record's key and value; None is left out."""

    key: str | None
    value: str | None


Decoder: TypeAlias = Callable[[Record], FormattedRecord]


class _Kind(NamedTuple):
    """A type of coordinator records.

    The fields of its key are strings, but `partition` is a number and `topicId` a UUID.
    """

    key_fields: tuple[str, ...]
    value: type[Message]


_OFFSET_KEY: Final = ("group", "topic", "partition")
_GROUP_KEY: Final = ("groupId",)
_MEMBER_KEY: Final = ("groupId", "memberId")

GROUP_KINDS: Final[Mapping[int, _Kind]] = {
    0: _Kind(_OFFSET_KEY, LegacyOffsetCommitValue),
    1: _Kind(_OFFSET_KEY, OffsetCommitValue),
    2: _Kind(("group",), GroupMetadataValue),
    3: _Kind(_GROUP_KEY, ConsumerGroupMetadataValue),
    4: _Kind(_GROUP_KEY, ConsumerGroupPartitionMetadataValue),
    5: _Kind(_MEMBER_KEY, ConsumerGroupMemberMetadataValue),
    6: _Kind(_GROUP_KEY, ConsumerGroupTargetAssignmentMetadataValue),
    7: _Kind(_MEMBER_KEY, ConsumerGroupTargetAssignmentMemberValue),
    8: _Kind(_MEMBER_KEY, ConsumerGroupCurrentMemberAssignmentValue),
    10: _Kind(_MEMBER_KEY, ShareGroupMemberMetadataValue),
    11: _Kind(_GROUP_KEY, ShareGroupMetadataValue),
    12: _Kind(_GROUP_KEY, ShareGroupTargetAssignmentMetadataValue),
    13: _Kind(_MEMBER_KEY, ShareGroupTargetAssignmentMemberValue),
    14: _Kind(_MEMBER_KEY, ShareGroupCurrentMemberAssignmentValue),
    15: _Kind(_GROUP_KEY, ShareGroupStatePartitionMetadataValue),
    16: _Kind(("groupId", "regularExpression"), ConsumerGroupRegularExpressionValue),
    17: _Kind(_GROUP_KEY, StreamsGroupMetadataValue),
    19: _Kind(_MEMBER_KEY, StreamsGroupMemberMetadataValue),
    20: _Kind(_GROUP_KEY, StreamsGroupTargetAssignmentMetadataValue),
    21: _Kind(_MEMBER_KEY, StreamsGroupTargetAssignmentMemberValue),
    22: _Kind(_MEMBER_KEY, StreamsGroupCurrentMemberAssignmentValue),
    23: _Kind(_GROUP_KEY, StreamsGroupTopologyValue),
}
_SHARE_KEY: Final = ("groupId", "topicId", "partition")
SHARE_KINDS: Final[Mapping[int, _Kind]] = {
    0: _Kind(_SHARE_KEY, ShareSnapshotValue),
    1: _Kind(_SHARE_KEY, ShareUpdateValue),
}
TRANSACTION_KINDS: Final[Mapping[int, _Kind]] = {
    0: _Kind(("transactionalId",), TransactionLogValue)
}

_STATES: Final = {state.value: state.wire_name for state in TransactionState}


def plain_text(record: Record) -> FormattedRecord:
    """Return key and value as text."""
    key, value = record.key, record.value
    return FormattedRecord(
        None if key is None else _text(key), None if value is None else _text(value)
    )


def metadata_record(record: Record) -> FormattedRecord:
    """Return the JSON of a record of the metadata log; such records have no keys."""
    try:
        return FormattedRecord(None, frame_json(*parse_frame(record.value or b"")))
    except UnsupportedMetadata as error:
        finding = error.finding
    except CorruptRecords as error:
        finding = str(error)
    return FormattedRecord(None, f"Error at {record.offset}, skipping. {finding}")


def group_record(record: Record) -> FormattedRecord:
    """Return the JSON of a record of `__consumer_offsets`.

    Raises:
        ToolFailed: it has no key.
    """
    return _coordinator_record(record, GROUP_KINDS)


def transaction_record(record: Record) -> FormattedRecord:
    """Return the JSON of a record of `__transaction_state`.

    Raises:
        ToolFailed: it has no key.
    """
    return _coordinator_record(record, TRANSACTION_KINDS)


def share_group_record(record: Record) -> FormattedRecord:
    """Return the JSON of a record of `__share_group_state` (KIP-932).

    Raises:
        ToolFailed: it has no key.
    """
    return _coordinator_record(record, SHARE_KINDS)


def _coordinator_record(record: Record, kinds: Mapping[int, _Kind]) -> FormattedRecord:
    if record.key is None:
        raise ToolFailed(
            f"Failed to decode message at offset {record.offset} using the specified decoder "
            "(message had a missing key)",
            "java.lang.RuntimeException",
        )
    try:
        (number,) = _INT16.unpack_from(record.key)
        kind = kinds.get(number)
        if kind is None:
            return FormattedRecord(
                f"Unknown record type {number} at offset {record.offset}, skipping.", None
            )
        key = compact({"type": str(number), "data": _key_fields(kind, record.key)})
        return FormattedRecord(key, _value_text(kind.value, record.value))
    except (CorruptRecords, ProtocolViolation, StructError, UnicodeDecodeError) as error:
        return FormattedRecord(f"Error at offset {record.offset}, skipping. {error}", None)


def _key_fields(kind: _Kind, key: bytes) -> dict[str, Any]:
    position = _INT16.size
    fields: dict[str, Any] = {}
    for name in kind.key_fields:
        if name == "partition":
            (fields[name],) = _INT32.unpack_from(key, position)
            position += _INT32.size
            continue
        if name == "topicId":
            if len(key) < position + _UUID_SIZE_BYTES:
                raise ProtocolViolation("the topic id of the key is cut off")
            fields[name] = uuid_text(Uuid(key[position : position + _UUID_SIZE_BYTES]))
            position += _UUID_SIZE_BYTES
            continue
        (size,) = _INT16.unpack_from(key, position)
        position += _INT16.size
        text = key[position : position + size]
        if size < 0 or len(text) < size:
            raise ProtocolViolation(f"the field {name} of the key has {len(text)} of {size} bytes")
        fields[name] = text.decode()
        position += size
    return fields


def _value_text(cls: type[Message], value: bytes | None) -> str:
    if value is None:
        return "<DELETE>"
    (version,) = _INT16.unpack_from(value)
    if not cls.FIRST_VERSION <= version <= cls.LAST_VERSION:
        raise ProtocolViolation(f"the value has the unknown version {version}")
    message, _ = decode(cls, version, value, _INT16.size)
    fields = fields_of(message, version)
    if isinstance(message, GroupMetadataValue) and message.protocol_type == "consumer":
        for shown, member in zip(fields["members"], message.members, strict=True):
            _expand(shown, "subscription", ConsumerProtocolSubscription, member.subscription)
            _expand(shown, "assignment", ConsumerProtocolAssignment, member.assignment)
    if isinstance(message, TransactionLogValue) and message.transaction_status in _STATES:
        fields["transactionStatus"] = _STATES[message.transaction_status]
    return compact({"version": str(version), "data": fields})


def _expand(shown: dict[str, Any], name: str, cls: type[Message], data: bytes) -> None:
    """Show the content of a field of bytes, if it can be read."""
    try:
        (version,) = _INT16.unpack_from(data)
        if cls.FIRST_VERSION <= version <= cls.LAST_VERSION:
            message, _ = decode(cls, version, data, _INT16.size)
            shown[name] = fields_of(message, version)
    except (ProtocolViolation, StructError, UnicodeDecodeError):
        return


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
