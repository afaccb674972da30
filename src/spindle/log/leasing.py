"""Lend a log to the lane of its directory, and take over what the lane has appended.

Both run on the directory's thread, while the lane works with no log.
"""

from collections.abc import Sequence
from typing import Final

from spindle.log.lease import LeasedProducer, LeaseTerms, ProducerBatches, SegmentProgress
from spindle.log.log import Log
from spindle.log.log_config import LogConfig
from spindle.log.producers.entry import BatchMetadata, ProducerStateEntry
from spindle.log.segments.rolling import latest_timestamp
from spindle.protocol.records.validation import NO_LIMIT_BYTES, NO_LIMIT_MS

NO_EPOCH: Final = -1
_MAX_PRODUCERS: Final = 1000
_MAX_SEGMENTS: Final = 10_000


def lease_terms(log: Log, leader_epoch: int, *, is_sole_replica: bool) -> LeaseTerms | None:
    """Return what a lane has to know; None if only Python can serve the log now."""
    if not _may_be_leased(log, leader_epoch):
        return None
    segment, config = log.segments.active, log.config
    log.prepare_lease()
    rules = config.append_rules
    limits = (
        config.segment_bytes,
        latest_timestamp(segment, config),
        config.index_interval_bytes,
        segment.offset_index.file.max_entries,
        segment.time_index.file.max_entries,
    )
    return LeaseTerms(
        topic=log.topic_partition.topic.encode(),
        topic_id=bytes(log.topic_id or bytes(16)),
        partition=log.topic_partition.partition,
        leader_epoch=leader_epoch,
        is_sole_replica=is_sole_replica,
        may_append=_may_append(config) and segment.first_timestamp() >= 0,
        has_transactions=any(not s.transaction_index.is_empty for s in log.segments),
        log_start_offset=log.log_start_offset,
        end_offset=log.log_end_offset,
        high_watermark=log.high_watermark,
        rules=(
            rules.max_batch_bytes,
            rules.uses_log_append_time,
            rules.timestamp_after_max_ms,
            rules.max_decompressed_record_bytes < NO_LIMIT_BYTES,
        ),
        paths=(segment.path, segment.offset_index.file.path, segment.time_index.file.path),
        base_offset=segment.base_offset,
        limits=limits,
        progress=segment.progress(),
        older=[
            (
                older.base_offset,
                older.size_bytes,
                older.path,
                older.offset_index.file.path,
                older.offset_index.file.count,
            )
            for older in log.segments.before(segment)
        ],
        producers=_known_producers(log),
    )


def _may_be_leased(log: Log, leader_epoch: int) -> bool:
    return (
        log.lease is None
        and not log.is_deleted
        and not log.is_moving
        and not log.is_being_cleaned
        and not log.config.is_compacted
        and log.config.flush_messages == NO_LIMIT_MS
        and log.epochs.latest == leader_epoch
        and log.has_durable_identity
        and log.topic_id is not None
        and not log.unverified_gaps
        and not log.has_open_transactions
        and log.segments.active.size_bytes > 0
        and len(log.segments) <= _MAX_SEGMENTS
    )


def _may_append(config: LogConfig) -> bool:
    """Return whether no setting of the topic needs a look at the records."""
    rules = config.append_rules
    has_any_age = rules.timestamp_before_max_ms == NO_LIMIT_MS
    return rules.codec is None and (rules.uses_log_append_time or has_any_age)


def _known_producers(log: Log) -> list[LeasedProducer]:
    """Return the idempotent producers that appended last; the others are unknown to the lane."""
    known: list[LeasedProducer] = []
    for entry in reversed(log.active_producers()):
        is_idempotent = entry.coordinator_epoch < 0 and not log.producers.verification_of(
            entry.producer_id
        )
        if is_idempotent and entry.batches:
            known.append(LeasedProducer(entry.producer_id, entry.producer_epoch, entry.batches))
        if len(known) == _MAX_PRODUCERS:
            break
    return known


def record_progress(
    log: Log,
    first_append_ms: int,
    progress: SegmentProgress,
    producers: Sequence[tuple[int, int, ProducerBatches]],
) -> None:
    """Store what the lane has appended since the last call.

    Args:
        first_append_ms: the time of the first append; -1 without one.
    """
    log.segments.active.take_progress(progress)
    if first_append_ms >= 0:
        log.note_unflushed(first_append_ms)
    for producer_id, epoch, batches in producers:
        cached = tuple(BatchMetadata(*batch) for batch in batches)
        known = log.producers.get(producer_id)
        coordinator_epoch = NO_EPOCH if known is None else known.coordinator_epoch
        timestamp_ms = cached[-1].timestamp_ms
        log.producers.put(
            ProducerStateEntry(producer_id, epoch, cached, timestamp_ms, coordinator_epoch)
        )
