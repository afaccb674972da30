"""Records of `__remote_log_metadata` as `kafka-dump-log` prints them, in Java's form (KIP-405)."""

from collections.abc import Callable
from typing import Any, Final

from spindle.cli.tools.dump_records import FormattedRecord
from spindle.common.errors import CorruptRecords, UnsupportedMetadata
from spindle.common.uuids import uuid_text
from spindle.protocol.message import Message
from spindle.protocol.messages.remote_log_records import (
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataSnapshotRecord,
    RemoteLogSegmentMetadataUpdateRecord,
    RemotePartitionDeleteMetadataRecord,
)
from spindle.protocol.metadata_frame import parse_frame
from spindle.protocol.records.record import Record

_SEGMENT_STATES: Final = (
    "COPY_SEGMENT_STARTED",
    "COPY_SEGMENT_FINISHED",
    "DELETE_SEGMENT_STARTED",
    "DELETE_SEGMENT_FINISHED",
)
_PARTITION_STATES: Final = (
    "DELETE_PARTITION_MARKED",
    "DELETE_PARTITION_STARTED",
    "DELETE_PARTITION_FINISHED",
)


def remote_log_record(record: Record) -> FormattedRecord:
    """Return the text of a record about segments in remote storage; its key is not shown."""
    try:
        message, _ = parse_frame(record.value or b"", REMOTE_LOG_TYPES)
        return FormattedRecord(None, _TEXTS[type(message)](message))
    except UnsupportedMetadata as error:
        finding = error.finding
    except CorruptRecords as error:
        finding = str(error)
    return FormattedRecord(None, f"Error at offset {record.offset}, skipping. {finding}")


def _segment(message: RemoteLogSegmentMetadataRecord) -> str:
    if not 0 <= message.start_offset <= message.end_offset:
        raise CorruptRecords(
            f"start offset {message.start_offset} and end offset {message.end_offset} are not a "
            "range"
        )
    return (
        f"RemoteLogSegmentMetadata{{remoteLogSegmentId={_segment_id(message)}, "
        f"startOffset={message.start_offset}, endOffset={message.end_offset}, "
        f"brokerId={message.broker_id}, maxTimestampMs={message.max_timestamp_ms}, "
        f"eventTimestampMs={message.event_timestamp_ms}, {_content(message)}}}"
    )


def _update(message: RemoteLogSegmentMetadataUpdateRecord) -> str:
    return (
        f"RemoteLogSegmentMetadataUpdate{{remoteLogSegmentId={_segment_id(message)}, "
        f"customMetadata={_custom(message.custom_metadata)}, "
        f"state={_state(_SEGMENT_STATES, message.remote_log_segment_state)}, "
        f"eventTimestampMs={message.event_timestamp_ms}, brokerId={message.broker_id}}}"
    )


def _deletion(message: RemotePartitionDeleteMetadataRecord) -> str:
    return (
        f"RemotePartitionDeleteMetadata{{topicPartition={_partition(message.topic_id_partition)}, "
        f"state={_state(_PARTITION_STATES, message.remote_partition_delete_state)}, "
        f"eventTimestampMs={message.event_timestamp_ms}, brokerId={message.broker_id}}}"
    )


def _snapshot(message: RemoteLogSegmentMetadataSnapshotRecord) -> str:
    return (
        f"RemoteLogSegmentMetadataSnapshot{{segmentId={uuid_text(message.segment_id)}, "
        f"startOffset={message.start_offset}, endOffset={message.end_offset}, "
        f"maxTimestampMs={message.max_timestamp_ms}, {_content(message)}}}"
    )


def _content(
    message: RemoteLogSegmentMetadataRecord | RemoteLogSegmentMetadataSnapshotRecord,
) -> str:
    # Java keeps the epochs in a sorted map: the last entry of an epoch counts.
    epochs = {epoch.leader_epoch: epoch.offset for epoch in message.segment_leader_epochs}
    if not epochs:
        raise CorruptRecords("the segment has no leader epochs")
    shown = ", ".join(f"{epoch}={offset}" for epoch, offset in sorted(epochs.items()))
    return (
        f"segmentLeaderEpochs={{{shown}}}, segmentSizeInBytes={message.segment_size_in_bytes}, "
        f"customMetadata={_custom(message.custom_metadata)}, "
        f"state={_state(_SEGMENT_STATES, message.remote_log_segment_state)}, "
        f"txnIdxEmpty={'true' if message.txn_index_empty else 'false'}"
    )


def _segment_id(
    message: RemoteLogSegmentMetadataRecord | RemoteLogSegmentMetadataUpdateRecord,
) -> str:
    segment = message.remote_log_segment_id
    return (
        f"RemoteLogSegmentId{{topicIdPartition={_partition(segment.topic_id_partition)}, "
        f"id={uuid_text(segment.id)}}}"
    )


def _partition(entry: Any) -> str:
    return f"{uuid_text(entry.id)}:{entry.name}-{entry.partition}"


def _custom(data: bytes | None) -> str:
    if data is None:
        return "Optional.empty"
    return f"Optional[CustomMetadata{{{len(data)} bytes}}]"


def _state(names: tuple[str, ...], number: int) -> str:
    if not 0 <= number < len(names):
        raise CorruptRecords(f"state {number} is unknown, known are 0 to {len(names) - 1}")
    return names[number]


_TEXTS: Final[dict[type[Message], Callable[[Any], str]]] = {
    RemoteLogSegmentMetadataRecord: _segment,
    RemoteLogSegmentMetadataUpdateRecord: _update,
    RemotePartitionDeleteMetadataRecord: _deletion,
    RemoteLogSegmentMetadataSnapshotRecord: _snapshot,
}
REMOTE_LOG_TYPES: Final = {cls.API_KEY: cls for cls in _TEXTS}
"""The classes of the records by their type."""
