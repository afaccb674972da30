"""Logs in memory and batches for the tests of this folder."""

from typing import TypedDict, Unpack

from spindle.common.ids import TopicPartition
from spindle.log.loading import create_log, load_log
from spindle.log.log import Log
from spindle.log.log_config import LogConfig
from spindle.log.producers.verification import NO_TRANSACTION, TransactionContext
from spindle.log.segments.lookup import TimestampOffset, TimestampSearch
from spindle.log.storage import LogStorage
from spindle.protocol.records.batch import batches, read_header
from spindle.protocol.records.builder import SimpleRecord, build_batch
from spindle.protocol.records.control import EndTransactionMarker, build_end_transaction
from spindle.protocol.records.record import Record, decode_records
from spindle.protocol.records.validation import AppendOrigin
from spindle.testing.filesystem import MemoryFileSystem

ROOT = "/data"
TOPIC_PARTITION = TopicPartition("orders", 0)
TOPIC_ID = bytes(range(16))
NOW_MS = 1_700_000_000_000
SMALL = LogConfig(segment_bytes=1000, segment_index_bytes=240, index_interval_bytes=100)


def new_storage(files: MemoryFileSystem | None = None) -> LogStorage:
    files = files or MemoryFileSystem()
    files.make_directories(ROOT)
    files.sync_directory("/")
    return LogStorage(files, ROOT)


def new_log(
    config: LogConfig = SMALL, storage: LogStorage | None = None, start_offset: int = 0
) -> Log:
    return create_log(
        storage or new_storage(),
        "orders-0",
        TOPIC_PARTITION,
        TOPIC_ID,
        config,
        NOW_MS,
        start_offset,
    )


def reload(
    files: MemoryFileSystem,
    config: LogConfig = SMALL,
    *,
    is_clean: bool,
    recovery_point: int = 0,
    clean_offset: int = 0,
    log_start_offset: int = 0,
    now_ms: int = NOW_MS,
) -> Log:
    """Open the log again, as another run of the broker does."""
    return load_log(
        LogStorage(files, ROOT),
        "orders-0",
        TOPIC_PARTITION,
        config,
        now_ms,
        is_clean=is_clean,
        recovery_point=recovery_point,
        clean_offset=clean_offset,
        log_start_offset=log_start_offset,
    )


def batch(
    *values: str,
    at_ms: int = NOW_MS,
    producer_id: int = -1,
    epoch: int = 0,
    sequence: int = -1,
    transactional: bool = False,
    codec: int = 0,
    key: bytes | None = b"k",
) -> bytes:
    return build_batch(
        [SimpleRecord(key, value.encode(), at_ms) for value in values],
        producer_id=producer_id,
        producer_epoch=epoch if producer_id >= 0 else -1,
        base_sequence=sequence,
        is_transactional=transactional,
        codec=codec,
    )


class BatchFields(TypedDict, total=False):
    """The arguments of `batch` besides the values of the records."""

    at_ms: int
    producer_id: int
    epoch: int
    sequence: int
    transactional: bool
    codec: int
    key: bytes | None


def append(log: Log, *values: str, leader_epoch: int = 0, **fields: Unpack[BatchFields]) -> int:
    """Append one batch, verified if it is transactional; the offset of its first record."""
    data = batch(*values, **fields)
    info = log.append_as_leader(data, leader_epoch, NOW_MS, terms=verified(log, data))
    return info.first_offset


def verified(log: Log, data: bytes, *, adds_partitions: bool = False) -> TransactionContext:
    """Begin the verification of a batch; the terms of its append."""
    header = read_header(data, 0)
    if not header.is_transactional:
        return NO_TRANSACTION
    return TransactionContext(
        log.producers.begin_verification(
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            NOW_MS,
            adds_partitions=adds_partitions,
        )
    )


def end_transaction(
    log: Log,
    producer_id: int,
    *,
    is_commit: bool,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    transaction_version: int = 0,
) -> int:
    marker = build_end_transaction(
        EndTransactionMarker(is_commit, coordinator_epoch), producer_id, epoch, NOW_MS
    )
    terms = TransactionContext(transaction_version=transaction_version)
    info = log.append_as_leader(marker, 0, NOW_MS, origin=AppendOrigin.COORDINATOR, terms=terms)
    return info.first_offset


def decode(data: bytes | memoryview) -> list[Record]:
    return [
        record
        for position, header in batches(data)
        for record in decode_records(data, position, header)
    ]


def read_all(log: Log) -> list[Record]:
    """Every record from the log start, fetched in small pieces."""
    records: list[Record] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        fetched = log.read(offset, 300, log.log_end_offset)
        wanted = [record for record in decode(fetched.records) if record.offset >= offset]
        if not fetched.records:
            break
        records += wanted
        offset = max(header.next_offset for _, header in batches(fetched.records))
    return records


def values(log: Log) -> list[tuple[int, str]]:
    return [(record.offset, (record.value or b"").decode()) for record in read_all(log)]


def search(log: Log, timestamp_ms: int | None) -> TimestampOffset | None:
    """Return the first record of that time or later, with None the one with the largest time."""
    search = TimestampSearch(timestamp_ms)
    while not search.is_over:
        if search.must_decode:
            search.decode()
        else:
            log.advance_search(search)
    return search.result
