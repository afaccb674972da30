"""Records of `__share_group_state`: snapshots and updates of share partitions (KIP-932).

A key starts with its type (int16: 0 snapshot, 1 update) and names group, topic id and partition. A
value starts with its version (int16), which is 0. An update adds to the snapshot before it; a
snapshot without a value deletes the state.
"""

from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

from spindle.common.errors import CorruptRecords, ProtocolViolation
from spindle.common.uuids import Uuid, uuid_text
from spindle.coordinator.share.delivery import StateBatch
from spindle.protocol.codec import decode, encode
from spindle.protocol.messages.share_group_state_records import (
    ShareSnapshotValue,
    ShareUpdateValue,
)

_SNAPSHOT_TYPE: Final = 0
_UPDATE_TYPE: Final = 1
_VERSION: Final = 0
_INT16: Final = Struct(">h")
_TYPE_AND_LENGTH: Final = Struct(">hh")
_TOPIC_AND_PARTITION: Final = Struct(">16si")


class ShareKey(NamedTuple):
    """A share partition: a partition of a topic as one group sees it."""

    group_id: str
    topic_id: Uuid
    partition: int

    @property
    def coordinator_key(self) -> str:
        """The key by which FindCoordinator and the state topic know the share partition."""
        return f"{self.group_id}:{uuid_text(self.topic_id)}:{self.partition}"


class Snapshot(NamedTuple):
    """The whole state of a share partition."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    create_timestamp_ms: int
    write_timestamp_ms: int
    batches: tuple[StateBatch, ...]


class Update(NamedTuple):
    """A change to the snapshot with the same epoch. A start offset of -1 changes nothing."""

    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]


class StateRecord(NamedTuple):
    """A record of the state topic; None deletes the state.

    `record_offset` is the offset of the record in the log, -1 before it is appended.
    """

    key: ShareKey
    value: Snapshot | Update | None
    record_offset: int = -1


def encode_state(record: StateRecord) -> tuple[bytes, bytes | None]:
    """Return key and value as they stand in the log."""
    key, value, _ = record
    kind = _UPDATE_TYPE if isinstance(value, Update) else _SNAPSHOT_TYPE
    group = key.group_id.encode()
    encoded_key = (
        _TYPE_AND_LENGTH.pack(kind, len(group))
        + group
        + _TOPIC_AND_PARTITION.pack(key.topic_id, key.partition)
    )
    if value is None:
        return encoded_key, None
    message: ShareSnapshotValue | ShareUpdateValue
    if isinstance(value, Snapshot):
        message = ShareSnapshotValue(
            snapshot_epoch=value.snapshot_epoch,
            state_epoch=value.state_epoch,
            leader_epoch=value.leader_epoch,
            start_offset=value.start_offset,
            delivery_complete_count=value.delivery_complete_count,
            create_timestamp=value.create_timestamp_ms,
            write_timestamp=value.write_timestamp_ms,
            state_batches=[
                ShareSnapshotValue.StateBatch(**batch._asdict()) for batch in value.batches
            ],
        )
    else:
        message = ShareUpdateValue(
            snapshot_epoch=value.snapshot_epoch,
            leader_epoch=value.leader_epoch,
            start_offset=value.start_offset,
            delivery_complete_count=value.delivery_complete_count,
            state_batches=[
                ShareUpdateValue.StateBatch(**batch._asdict()) for batch in value.batches
            ],
        )
    return encoded_key, _INT16.pack(_VERSION) + encode(message, _VERSION)


def parse_state(key: bytes | None, value: bytes | None, record_offset: int) -> StateRecord | None:
    """Parse a key and a value; return None if the key's type is unknown.

    Raises:
        CorruptRecords: key or value cannot be parsed, or have an unknown version.
    """
    if key is None:
        raise CorruptRecords(f"record at offset {record_offset} has no key")
    try:
        (kind,) = _INT16.unpack_from(key)
        if kind not in (_SNAPSHOT_TYPE, _UPDATE_TYPE):
            return None
        share_key = _parse_key(key)
        if value is None:
            return StateRecord(share_key, None, record_offset)
        (version,) = _INT16.unpack_from(value)
        if version != _VERSION:
            raise CorruptRecords(
                f"share state at offset {record_offset} has value version {version}, known is 0"
            )
        if kind == _SNAPSHOT_TYPE:
            return StateRecord(share_key, _parse_snapshot(value), record_offset)
        return StateRecord(share_key, _parse_update(value), record_offset)
    except (ProtocolViolation, StructError, UnicodeDecodeError) as error:
        raise CorruptRecords(f"share state at offset {record_offset}: {error}") from None


def _parse_key(key: bytes) -> ShareKey:
    _, length = _TYPE_AND_LENGTH.unpack_from(key)
    end = _TYPE_AND_LENGTH.size + length
    topic_id, partition = _TOPIC_AND_PARTITION.unpack_from(key, end)
    return ShareKey(bytes(key[_TYPE_AND_LENGTH.size : end]).decode(), topic_id, partition)


def _parse_snapshot(value: bytes) -> Snapshot:
    stored, _ = decode(ShareSnapshotValue, _VERSION, value, 2)
    return Snapshot(
        stored.snapshot_epoch,
        stored.state_epoch,
        stored.leader_epoch,
        stored.start_offset,
        stored.delivery_complete_count,
        stored.create_timestamp,
        stored.write_timestamp,
        _batches(stored.state_batches),
    )


def _parse_update(value: bytes) -> Update:
    stored, _ = decode(ShareUpdateValue, _VERSION, value, 2)
    return Update(
        stored.snapshot_epoch,
        stored.leader_epoch,
        stored.start_offset,
        stored.delivery_complete_count,
        _batches(stored.state_batches),
    )


def _batches(
    stored: list[ShareSnapshotValue.StateBatch] | list[ShareUpdateValue.StateBatch],
) -> tuple[StateBatch, ...]:
    return tuple(
        [
            StateBatch(b.first_offset, b.last_offset, b.delivery_state, b.delivery_count)
            for b in stored
        ]
    )
