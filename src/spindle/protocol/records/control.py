"""Control batches: keys of their records, and the markers that end a transaction (KIP-98)."""

from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from spindle.common.errors import CorruptRecords
from spindle.protocol.records.builder import SimpleRecord, build_batch
from spindle.protocol.records.record import Record

_KEY: Final = Struct(">hh")
_END_TRANSACTION_VALUE: Final = Struct(">hi")
_KEY_VERSION: Final = 0
_VALUE_VERSION: Final = 0


class ControlType(IntEnum):
    """The type of a control record, as in its key."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class EndTransactionMarker(NamedTuple):
    """The marker with which a coordinator ends a transaction in one partition."""

    is_commit: bool
    coordinator_epoch: int


def control_key(control_type: int) -> bytes:
    """Return the key of a control record: version and type."""
    return _KEY.pack(_KEY_VERSION, control_type)


def read_control_type(key: bytes | None) -> int:
    """Return the type in a control record's key; `ControlType` may not know it.

    Raises:
        CorruptRecords: the key is shorter than its four bytes or has a negative version.
    """
    if key is None or len(key) < _KEY.size:
        raise CorruptRecords(f"control record with key {key!r}: want {_KEY.size} bytes")
    version, control_type = _KEY.unpack_from(key)
    if version < 0:
        raise CorruptRecords(f"control record with key version {version}")
    return int(control_type)


def read_end_transaction(record: Record) -> EndTransactionMarker | None:
    """Return the marker in a control record, None if the record is of another kind.

    Raises:
        CorruptRecords: key or value do not parse.
    """
    control_type = read_control_type(record.key)
    if control_type not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    value = record.value
    if value is None or len(value) < _END_TRANSACTION_VALUE.size:
        raise CorruptRecords(
            f"end of transaction at offset {record.offset}: value {value!r}, "
            f"want {_END_TRANSACTION_VALUE.size} bytes"
        )
    version, coordinator_epoch = _END_TRANSACTION_VALUE.unpack_from(value)
    if version < 0:
        raise CorruptRecords(f"end of transaction at offset {record.offset}: version {version}")
    return EndTransactionMarker(control_type == ControlType.COMMIT, coordinator_epoch)


def build_end_transaction(
    marker: EndTransactionMarker,
    producer_id: int,
    producer_epoch: int,
    timestamp_ms: int,
    leader_epoch: int = -1,
) -> bytes:
    """Return the control batch that ends a producer's transaction in a partition."""
    control_type = ControlType.COMMIT if marker.is_commit else ControlType.ABORT
    record = SimpleRecord(
        control_key(control_type),
        _END_TRANSACTION_VALUE.pack(_VALUE_VERSION, marker.coordinator_epoch),
        timestamp_ms,
    )
    return build_batch(
        [record],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        leader_epoch=leader_epoch,
        is_transactional=True,
        is_control=True,
    )


def build_control_batch(
    records: list[tuple[ControlType, bytes]],
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytes:
    """Return a control batch of the quorum with these (type, encoded value) pairs."""
    return build_batch(
        [SimpleRecord(control_key(kind), value, timestamp_ms) for kind, value in records],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        is_control=True,
    )
