"""The checks and changes of a record set before its leader appends it.

In the common case, one valid batch that is appended unchanged, only a header is read and a CRC
computed. Records are decoded only if a rule needs them: keys on a compacted topic, a timestamp
limit that the header cannot decide, or another codec than the producer's. (KIP-32 and KIP-937 for
timestamps, KIP-467 for errors of single records, KIP-390 for `compression.type`.)
"""

from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from spindle.common.errors import ApiError, CorruptRecords, ErrorCode
from spindle.common.ports import Bytes
from spindle.protocol import versions
from spindle.protocol.records.batch import (
    CODEC_MASK,
    CONTROL_FLAG,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    MAGIC_POSITION,
    NO_PRODUCER_ID,
    TIMESTAMP_TYPE_FLAG,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    check_crc,
    patch_timestamp,
    read_header,
)
from spindle.protocol.records.builder import rebuild_batch
from spindle.protocol.records.compression import Codec
from spindle.protocol.records.record import (
    MAX_DECODED_RECORDS,
    Record,
    decode_bounded,
    longest_record_bytes,
)
from spindle.protocol.sentinels import NO_TIMESTAMP

NO_LIMIT_MS: Final = 2**63 - 1
NO_LIMIT_BYTES: Final = 2**31 - 9
"""The largest value of `max.decompressed.message.bytes`: the length of Java's longest array."""
DEFAULT_TIMESTAMP_AFTER_MAX_MS: Final = 3_600_000
_LENGTH: Final = Struct(">i")
_LENGTH_POSITION: Final = 8
_MIN_LENGTH: Final = 14
_MAX_LENGTH: Final = 2**31 - 1 - LOG_OVERHEAD_BYTES
"""A batch length outside these bounds is corrupt; within them a batch may be incomplete."""
_SMALL_BATCH_BYTES: Final = 64 * 1024
_SHOWN_RECORD_ERRORS: Final = 3


class AppendOrigin(IntEnum):
    """The origin of the records of an append; records of clients are checked most."""

    REPLICATION = 0
    COORDINATOR = 1
    CLIENT = 2
    RAFT_LEADER = 3


class AppendRules(NamedTuple):
    """The settings of a topic for appends. Times in ms; `codec` None keeps the producer's codec.

    `max_decompressed_record_bytes` limits each record of a compressed batch.
    """

    max_batch_bytes: int
    codec: int | None = None
    compression_level: int | None = None
    is_compacted: bool = False
    uses_log_append_time: bool = False
    timestamp_before_max_ms: int = NO_LIMIT_MS
    timestamp_after_max_ms: int = DEFAULT_TIMESTAMP_AFTER_MAX_MS
    max_decompressed_record_bytes: int = NO_LIMIT_BYTES


class RecordError(NamedTuple):
    """The reason why one record, by its index in the batch, makes the leader refuse the batch."""

    batch_index: int
    message: str


class RecordsRejected(ApiError):
    """A batch is refused because of records that the answer lists (Produce 8 and newer)."""

    def __init__(self, code: ErrorCode, message: str, errors: list[RecordError]) -> None:
        super().__init__(code, message)
        self.record_errors = errors


class ValidRecords(NamedTuple):
    """A record set that may be appended: its bytes, and position and header of each batch."""

    records: bytearray | memoryview
    batches: list[tuple[int, BatchHeader]]


def must_be_decoded_first(
    records: Bytes, rules: AppendRules, now_ms: int, origin: AppendOrigin
) -> bool:
    """Return whether `validate_for_append` decodes a first batch that may not be small.

    How much a compressed batch unpacks to is known only afterwards.
    """
    try:
        header = read_header(records, 0)
    except CorruptRecords:
        return False
    is_small = not header.codec and header.size_bytes <= _SMALL_BATCH_BYTES
    return not is_small and (
        _must_convert(header, rules)
        or (origin is AppendOrigin.CLIENT and _must_see_records(header, rules, now_ms))
    )


def check_produce_request(records: Bytes | None, api_version: int) -> None:
    """Check the record set of a partition in a produce request of `api_version` (3 and newer).

    Raises:
        ApiError: INVALID_RECORD unless there is exactly one batch of magic 2,
            UNSUPPORTED_COMPRESSION_TYPE for zstd before version 7.
    """
    size = 0 if records is None else len(records)
    if records is None or not _has_first_batch(records):
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"Produce requests with version {api_version} must have at least one record batch "
            f"per partition; {size} bytes came",
        )
    magic = records[MAGIC_POSITION]
    if magic != MAGIC:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"Produce requests with version {api_version} carry record batches of magic {MAGIC} "
            f"only; magic {magic} came",
        )
    header = _read_header(records, 0)
    if api_version < versions.PRODUCE_ZSTD and header.codec == Codec.ZSTD:
        raise ApiError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"zstd needs Produce version {versions.PRODUCE_ZSTD}; version {api_version} came",
        )
    if header.batch_length + LOG_OVERHEAD_BYTES < size:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"Produce requests with version {api_version} carry exactly one record batch per "
            f"partition; {size - header.size_bytes} bytes follow the first",
        )


def _has_first_batch(records: Bytes) -> bool:
    """Return True if the first batch is complete, False if it is cut off.

    Raises:
        ApiError: CORRUPT_MESSAGE for a length that no batch can have.
    """
    if len(records) < HEADER_BYTES:
        return False
    (length,) = _LENGTH.unpack_from(records, _LENGTH_POSITION)
    if not _MIN_LENGTH <= length <= _MAX_LENGTH:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"A batch says that it has {length} bytes")
    complete: bool = length + LOG_OVERHEAD_BYTES <= len(records)
    return complete


def validate_for_append(
    records: bytearray | memoryview,
    rules: AppendRules,
    now_ms: int,
    origin: AppendOrigin,
    where: object,
) -> ValidRecords:
    """Check `records` and change them where a rule wants it. Timestamps are patched in place.

    Args:
        where: The partition, for the texts of errors.

    Returns:
        The same buffer, or a new one if a batch had to be rebuilt. Offsets and leader epochs are
        unchanged; the log assigns them.

    Raises:
        ApiError: CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, INVALID_RECORD, INVALID_TIMESTAMP or
            UNSUPPORTED_COMPRESSION_TYPE; RecordsRejected if single records are at fault.
    """
    valid: list[tuple[int, BatchHeader]] = []
    rewritten: dict[int, bytes] = {}
    position = 0
    while position < len(records):
        header = _read_header(records, position)
        _check_batch(records, position, header, rules, origin, where)
        replacement = _apply_rules(records, position, header, rules, now_ms, origin, where)
        if isinstance(replacement, bytes):
            rewritten[position] = replacement
            valid.append((position, header))
        else:
            valid.append((position, replacement))
        position += header.batch_length + LOG_OVERHEAD_BYTES
    if origin is AppendOrigin.CLIENT and len(valid) != 1:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"A produced record set has exactly one batch; {len(valid)} came for {where}",
        )
    if rewritten:
        return _assemble(records, valid, rewritten)
    return ValidRecords(records, valid)


def _read_header(records: Bytes, position: int) -> BatchHeader:
    left = len(records) - position
    if left > MAGIC_POSITION and records[position + MAGIC_POSITION] < MAGIC:
        raise ApiError(
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            f"Records of magic {records[position + MAGIC_POSITION]} are not supported; "
            f"want magic {MAGIC}",
        )
    try:
        header = read_header(records, position)
    except CorruptRecords as error:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    if header.batch_length + LOG_OVERHEAD_BYTES > left:
        raise ApiError(
            ErrorCode.CORRUPT_MESSAGE,
            f"A batch says that it has {header.size_bytes} bytes; {left} bytes came",
        )
    return header


def _check_batch(
    records: Bytes,
    position: int,
    header: BatchHeader,
    rules: AppendRules,
    origin: AppendOrigin,
    where: object,
) -> None:
    # Here and below the header's properties are written out: they are a tenth of an append's calls.
    _check_size(header.batch_length + LOG_OVERHEAD_BYTES, rules, where)
    try:
        check_crc(records, position, header)
    except CorruptRecords as error:
        raise ApiError(
            ErrorCode.CORRUPT_MESSAGE, f"Record is corrupt in the append to {where}: {error}"
        ) from error
    if header.attributes & CODEC_MASK > Codec.ZSTD:
        raise ApiError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"Compression codec {header.codec} in the append to {where} is not defined",
        )
    if header.record_count <= 0 or header.last_offset_delta != header.record_count - 1:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"Inconsistent batch in the append to {where}: {header.record_count} records, last "
            f"offset delta {header.last_offset_delta}",
        )
    if origin is AppendOrigin.CLIENT:
        _check_client_batch(header, where)


def _check_size(batch_bytes: int, rules: AppendRules, where: object) -> None:
    if batch_bytes > rules.max_batch_bytes:
        raise ApiError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The record batch size in the append to {where} is {batch_bytes} bytes which "
            f"exceeds the maximum configured value of {rules.max_batch_bytes}",
        )


def _check_client_batch(header: BatchHeader, where: object) -> None:
    attributes = header.attributes
    if header.base_offset != 0:
        finding = f"the base offset is {header.base_offset}, a client writes 0"
    elif attributes & CONTROL_FLAG:
        finding = "clients are not allowed to write control records"
    elif header.producer_id > NO_PRODUCER_ID and header.base_sequence < 0:
        finding = (
            f"sequence number {header.base_sequence} with producer id {header.producer_id}, "
            "want 0 or more"
        )
    elif attributes & TRANSACTIONAL_FLAG and header.producer_id <= NO_PRODUCER_ID:
        finding = "a transactional batch has no producer id"
    else:
        return
    raise ApiError(ErrorCode.INVALID_RECORD, f"Invalid batch in the append to {where}: {finding}")


def _apply_rules(
    records: bytearray | memoryview,
    position: int,
    header: BatchHeader,
    rules: AppendRules,
    now_ms: int,
    origin: AppendOrigin,
    where: object,
) -> BatchHeader | bytes:
    """Return the header after patches in place, or the bytes of a rebuilt batch."""
    # Control records stay as their coordinator wrote them, as in Kafka.
    attributes = header.attributes
    must_convert = _must_convert(header, rules)
    # Records of this broker itself are not decoded: coordinators write keys and current times.
    is_foreign = origin is AppendOrigin.CLIENT
    if must_convert or (is_foreign and _must_see_records(header, rules, now_ms)):
        if _limits_records(header, rules):
            _check_record_sizes(records, position, header, rules, where)
        decoded = _decode(records, position, header, where)
        _check_records(decoded, header, rules, now_ms, where)
        if must_convert:
            converted = _convert(header, decoded, rules, now_ms)
            _check_size(len(converted), rules, where)
            return converted
        newest = max(record.timestamp_ms for record in decoded)
    else:
        newest = header.max_timestamp
    if rules.uses_log_append_time:
        return patch_timestamp(records, position, header, now_ms, is_log_append_time=True)
    if attributes & TIMESTAMP_TYPE_FLAG or newest != header.max_timestamp:
        return patch_timestamp(records, position, header, newest, is_log_append_time=False)
    return header


def _must_convert(header: BatchHeader, rules: AppendRules) -> bool:
    return (
        rules.codec is not None
        and rules.codec != header.attributes & CODEC_MASK
        and not header.attributes & CONTROL_FLAG
    )


def _must_see_records(header: BatchHeader, rules: AppendRules, now_ms: int) -> bool:
    if rules.is_compacted and not header.attributes & CONTROL_FLAG:
        return True
    if _limits_records(header, rules):
        return True
    if rules.uses_log_append_time:
        return False
    return (
        header.attributes & TIMESTAMP_TYPE_FLAG != 0
        or header.max_timestamp > now_ms + rules.timestamp_after_max_ms
        or rules.timestamp_before_max_ms != NO_LIMIT_MS
    )


def _limits_records(header: BatchHeader, rules: AppendRules) -> bool:
    return (
        rules.max_decompressed_record_bytes < NO_LIMIT_BYTES and header.attributes & CODEC_MASK != 0
    )


def _check_record_sizes(
    records: Bytes, position: int, header: BatchHeader, rules: AppendRules, where: object
) -> None:
    limit_bytes = rules.max_decompressed_record_bytes
    try:
        longest_bytes = longest_record_bytes(records, position, header)
    except CorruptRecords as error:
        raise ApiError(
            ErrorCode.INVALID_RECORD, f"Records in the append to {where} do not parse: {error}"
        ) from error
    if longest_bytes > limit_bytes:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"A record in the append to {where} has {longest_bytes} bytes after decompression; "
            f"max.decompressed.message.bytes is {limit_bytes}",
        )


def _decode(records: Bytes, position: int, header: BatchHeader, where: object) -> list[Record]:
    if header.record_count > MAX_DECODED_RECORDS:
        # Clients answer this error with smaller batches.
        raise ApiError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The record batch in the append to {where} has {header.record_count} records, where "
            f"they have to be looked into at most {MAX_DECODED_RECORDS} are taken",
        )
    # Check the client's own timestamps, whatever timestamp type the batch has.
    own_times = header._replace(attributes=header.attributes & ~TIMESTAMP_TYPE_FLAG)
    try:
        return decode_bounded(records, position, own_times)
    except CorruptRecords as error:
        raise ApiError(
            ErrorCode.INVALID_RECORD, f"Records in the append to {where} do not parse: {error}"
        ) from error


def _check_records(
    records: list[Record], header: BatchHeader, rules: AppendRules, now_ms: int, where: object
) -> None:
    oldest_ms = now_ms - rules.timestamp_before_max_ms
    newest_ms = now_ms + rules.timestamp_after_max_ms
    code = ErrorCode.INVALID_RECORD
    errors: list[RecordError] = []
    for index, record in enumerate(records):
        if record.offset != header.base_offset + index:
            errors.append(
                RecordError(
                    index,
                    f"The record has offset {record.offset} in its batch, expected "
                    f"{header.base_offset + index} in {where}",
                )
            )
        elif rules.is_compacted and record.key is None and not header.is_control:
            errors.append(
                RecordError(
                    index,
                    f"Compacted topic cannot accept message without key in topic partition {where}",
                )
            )
        elif (
            not rules.uses_log_append_time
            and record.timestamp_ms != NO_TIMESTAMP
            and not oldest_ms <= record.timestamp_ms <= newest_ms
        ):
            code = ErrorCode.INVALID_TIMESTAMP
            errors.append(
                RecordError(
                    index,
                    f"Timestamp {record.timestamp_ms} of the record at index {index} is out of "
                    f"range; it should be within [{oldest_ms}, {newest_ms}]",
                )
            )
    if not errors:
        return
    if code is ErrorCode.INVALID_TIMESTAMP:
        text = "One or more records have been rejected due to invalid timestamp"
    else:
        shown = "; ".join(error.message for error in errors[:_SHOWN_RECORD_ERRORS])
        text = f"One or more records have been rejected due to {len(errors)} record errors: {shown}"
    raise RecordsRejected(code, text, errors)


def _convert(header: BatchHeader, records: list[Record], rules: AppendRules, now_ms: int) -> bytes:
    attributes = header.attributes & ~(TIMESTAMP_TYPE_FLAG | CODEC_MASK)
    if rules.uses_log_append_time:
        typed = header._replace(attributes=attributes | TIMESTAMP_TYPE_FLAG, max_timestamp=now_ms)
    else:
        typed = header._replace(attributes=attributes)
    return rebuild_batch(typed, records, codec=rules.codec, level=rules.compression_level)


def _assemble(
    records: bytearray | memoryview,
    batches: list[tuple[int, BatchHeader]],
    rewritten: dict[int, bytes],
) -> ValidRecords:
    output = bytearray()
    placed: list[tuple[int, BatchHeader]] = []
    for position, header in batches:
        start = len(output)
        replacement = rewritten.get(position)
        if replacement is None:
            output += records[position : position + header.batch_length + LOG_OVERHEAD_BYTES]
        else:
            output += replacement
        placed.append((start, read_header(output, start)))
    return ValidRecords(output, placed)
