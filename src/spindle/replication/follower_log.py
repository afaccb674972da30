"""What a follower does to its log when the leader has answered; runs on the directory's thread.

KIP-101 and KIP-279 (truncation by epochs), KIP-107 (log start offsets), KIP-595 (the diverging
epoch comes with the fetch).
"""

import logging
from typing import NamedTuple, TypeAlias

from spindle.common.ports import Bytes
from spindle.log.errors import UnexpectedAppendOffset
from spindle.log.log import Log

logger = logging.getLogger(__name__)

NO_EPOCH = -1


class LogPosition(NamedTuple):
    """Where a follower's log stands; `last_epoch` is -1 for a log without a history of epochs."""

    end_offset: int
    last_epoch: int
    start_offset: int
    high_watermark: int


class Append(NamedTuple):
    """Take over records, high watermark and log start of the leader.

    `fetch_offset` is the log end that the records were fetched for.
    """

    fetch_offset: int
    leader_epoch: int
    records: Bytes
    high_watermark: int
    log_start_offset: int


class TruncateToEpoch(NamedTuple):
    """The leader's `epoch`, the largest not above our last one, ends at `end_offset`."""

    epoch: int
    end_offset: int


class TruncateTo(NamedTuple):
    """The leader's log ends below ours."""

    offset: int


class StartOver(NamedTuple):
    """The leader's log starts above our end."""

    offset: int


LogWork: TypeAlias = Append | TruncateToEpoch | TruncateTo | StartOver


def position_of(log: Log) -> LogPosition:
    """Where the log stands."""
    latest = log.latest_epoch()
    return LogPosition(
        log.log_end_offset,
        NO_EPOCH if latest is None else latest,
        log.log_start_offset,
        log.high_watermark,
    )


def begin_to_follow(log: Log, now_ms: int) -> LogPosition:
    """Where fetching begins.

    Without epochs nothing can tell where the log parts from the leader's, so what is not known to
    be committed goes.
    """
    if log.latest_epoch() is None:
        log.truncate_to(log.high_watermark, now_ms)
    return position_of(log)


def apply_leader_answer(log: Log, work: LogWork, now_ms: int) -> LogPosition:
    """Do what the leader's answer asks for; where the log stands then.

    Raises:
        CorruptRecords: the records are not sound. What came before the answer stays.
        UnexpectedAppendOffset: the records begin below the log end.
    """
    match work:
        case Append():
            _append(log, work, now_ms)
        case TruncateToEpoch(epoch, end_offset):
            _truncate(log, truncation_offset(log, epoch, end_offset), now_ms)
        case TruncateTo(offset):
            _truncate(log, offset, now_ms)
        case StartOver(offset):
            logger.warning("%s starts over at %d, the leader's log start", log, offset)
            log.truncate_fully_and_start_at(offset)
    return position_of(log)


def truncation_offset(log: Log, epoch: int, end_offset: int) -> int:
    """Up to where the log agrees with the leader's, as far as can be told (KIP-279).

    Where the log does not know the leader's epoch, the end of its largest epoch below is the next
    one to ask about.
    """
    own = log.end_offset_for_epoch(epoch)
    if own.epoch == NO_EPOCH:
        return min(end_offset, log.log_end_offset)
    if own.epoch != epoch:
        return min(own.offset, log.log_end_offset)
    return min(own.offset, end_offset, log.log_end_offset)


def _truncate(log: Log, offset: int, now_ms: int) -> None:
    if offset < log.high_watermark:
        logger.warning(
            "truncating %s to offset %d below its high watermark, as its leader's log demands",
            log,
            offset,
        )
    log.truncate_to(offset, now_ms)


def _append(log: Log, work: Append, now_ms: int) -> None:
    if work.fetch_offset != log.log_end_offset:
        return  # the log changed since the request was made: what came is asked for again
    if len(work.records):
        try:
            log.append_as_follower(work.records, work.leader_epoch, now_ms)
        except UnexpectedAppendOffset as error:
            if not _begins_within_batch(log, error):
                raise
            # DeleteRecords left the leader's log start in the middle of a batch.
            log.truncate_fully_and_start_at(error.first_offset)
            log.append_as_follower(work.records, work.leader_epoch, now_ms)
    if work.high_watermark > log.high_watermark:
        log.update_high_watermark(work.high_watermark)
    if log.log_start_offset < work.log_start_offset <= log.high_watermark:
        log.increment_log_start_offset(work.log_start_offset)


def _begins_within_batch(log: Log, error: UnexpectedAppendOffset) -> bool:
    """An empty log asked for its first record, which is not the first one of its batch."""
    is_empty = log.log_start_offset == log.log_end_offset
    return is_empty and error.first_offset < log.log_end_offset <= error.last_offset
