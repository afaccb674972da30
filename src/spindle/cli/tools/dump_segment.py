"""Batches and records of a segment as `kafka-dump-log` prints them."""

from collections.abc import Iterator
from typing import Final

from spindle.cli.tools.dump_records import Decoder
from spindle.cli.tools.message_json import message_json
from spindle.common.errors import CorruptRecords
from spindle.protocol.codec import decode
from spindle.protocol.message import Message
from spindle.protocol.messages.raft_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from spindle.protocol.records.batch import BatchHeader, batches, check_crc
from spindle.protocol.records.compression import Codec
from spindle.protocol.records.control import (
    ControlType,
    read_control_type,
    read_end_transaction,
)
from spindle.protocol.records.record import Record, decode_records

_CONTROL_RECORDS: Final[dict[int, tuple[str, type[Message]]]] = {
    ControlType.LEADER_CHANGE: ("LeaderChange:", LeaderChangeMessage),
    ControlType.SNAPSHOT_HEADER: ("SnapshotHeader", SnapshotHeaderRecord),
    ControlType.SNAPSHOT_FOOTER: ("SnapshotFooter", SnapshotFooterRecord),
    ControlType.KRAFT_VERSION: ("KRaftVersion", KRaftVersionRecord),
    ControlType.KRAFT_VOTERS: ("KRaftVoters", VotersRecord),
}
_VERSION: Final = 0


class SegmentDump:
    """Prints one segment.

    Args:
        with_records: the records of each batch, too.
        with_numbers: offset, timestamp and sizes of records; without them, control records are
            empty lines.
        decoder: shows keys and values, which are left out without one.
    """

    def __init__(
        self, *, with_records: bool, with_numbers: bool, decoder: Decoder | None = None
    ) -> None:
        self._with_records = with_records
        self._with_numbers = with_numbers
        self._decoder = decoder
        self.trailing_bytes = 0
        self.invalid = 0

    def head(self, name: str) -> list[str]:
        """Return the lines above the batches, from the name of the file."""
        text, _, kind = name.partition(".")
        if kind == "checkpoint":
            offset, _, epoch = text.partition("-")
            if offset.isdecimal() and epoch.isdecimal():
                return [f"Snapshot end offset: {int(offset)}, epoch: {int(epoch)}"]
            return ["KRaft bootstrap snapshot"] if text == "bootstrap" else []
        return [f"Log starting offset: {int(text)}"] if text.isdecimal() else []

    def lines(self, data: bytes) -> Iterator[str]:
        """Yield the lines of the batches, each followed by its records."""
        position = 0
        for at, header in batches(data):
            position = at + header.size_bytes
            is_valid = self._is_valid(data, at, header)
            yield _batch_line(at, header, is_valid=is_valid)
            if is_valid and self._with_records:
                for record in decode_records(data, at, header):
                    yield self._record_line(header, record)
        self.trailing_bytes = len(data) - position

    def batch_starts(self, data: bytes) -> dict[int, int]:
        """Return the base offsets of the batches by position."""
        return {at: header.base_offset for at, header in batches(data)}

    def _is_valid(self, data: bytes, at: int, header: BatchHeader) -> bool:
        try:
            check_crc(data, at, header)
        except CorruptRecords:
            self.invalid += 1
            return False
        return True

    def _record_line(self, header: BatchHeader, record: Record) -> str:
        parts = []
        if self._with_numbers:
            parts.append(_numbers(header, record))
        if header.is_control:
            parts += [_control_text(record)] if self._with_numbers else []
        elif self._decoder is not None:
            key, value = self._decoder(record)
            parts += [] if key is None else [f"key: {key}"]
            parts += [] if value is None else [f"payload: {value}"]
        return " ".join(["|", *parts]) if parts else ""


def _batch_line(position: int, header: BatchHeader, *, is_valid: bool) -> str:
    horizon = header.delete_horizon_ms
    clock = "LogAppendTime" if header.has_log_append_time else "CreateTime"
    return (
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} "
        f"count: {header.record_count} baseSequence: {header.base_sequence} "
        f"lastSequence: {header.last_sequence} producerId: {header.producer_id} "
        f"producerEpoch: {header.producer_epoch} partitionLeaderEpoch: {header.leader_epoch} "
        f"isTransactional: {_bool(header.is_transactional)} isControl: {_bool(header.is_control)} "
        f"deleteHorizonMs: "
        f"{'OptionalLong.empty' if horizon is None else f'OptionalLong[{horizon}]'} "
        f"position: {position} {clock}: {header.max_timestamp} size: {header.size_bytes} "
        f"magic: {header.magic} compresscodec: {Codec(header.codec).name.lower()} "
        f"crc: {header.crc} isvalid: {_bool(is_valid)}"
    )


def _numbers(header: BatchHeader, record: Record) -> str:
    clock = "LogAppendTime" if header.has_log_append_time else "CreateTime"
    names = ",".join(name for name, _ in record.headers)
    return (
        f"offset: {record.offset} {clock}: {record.timestamp_ms} "
        f"keySize: {_size(record.key)} valueSize: {_size(record.value)} "
        f"sequence: {record.sequence} headerKeys: [{names}]"
    )


def _control_text(record: Record) -> str:
    kind = read_control_type(record.key)
    marker = read_end_transaction(record)
    if marker is not None:
        outcome = "COMMIT" if marker.is_commit else "ABORT"
        return f"endTxnMarker: {outcome} coordinatorEpoch: {marker.coordinator_epoch}"
    known = _CONTROL_RECORDS.get(kind)
    if known is None:
        return f"controlType: UNKNOWN({kind})"
    label, cls = known
    value = record.value or b""
    version = int.from_bytes(value[:2], "big", signed=True) if len(value) >= 2 else _VERSION
    message, _ = decode(cls, version, value)
    text = message_json(message, version)
    return f"{label} {text}"


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _bool(value: bool) -> str:
    return "true" if value else "false"
