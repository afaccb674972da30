"""Changes of a follower's log after the leader's answer; they run on the directory's thread.

KIP-101 and KIP-279 (truncation by epochs), KIP-107 (log start offsets), KIP-595 (the diverging
epoch comes with the fetch).
"""

import logging
from typing import NamedTuple, TypeAlias

from spindle.common.epoch_history import truncation_offset
from spindle.common.ids import OffsetAndEpoch
from spindle.common.ports import Bytes
from spindle.log.errors import UnexpectedAppendOffset
from spindle.log.log import Log
from spindle.log.log_values import Gap

logger = logging.getLogger(__name__)

NO_EPOCH = -1


class LogPosition(NamedTuple):
    """The position of a follower's log.

    Attributes:
        last_epoch: the epoch of the last record below `fetch_offset`; -1 if the log has none.
        gap: the first unverified gap; None if there is none.
    """

    end_offset: int
    last_epoch: int
    start_offset: int
    high_watermark: int
    gap: Gap | None = None

    @property
    def fetch_offset(self) -> int:
        """The log end, or the beginning of the gap."""
        return self.end_offset if self.gap is None else self.gap.first_offset


class Append(NamedTuple):
    """Append the leader's records, and move high watermark and log start to the leader's.

    `fetch_offset` is the log end for which the records were fetched.
    """

    fetch_offset: int
    leader_epoch: int
    records: Bytes
    high_watermark: int
    log_start_offset: int


class TruncateToEpoch(NamedTuple):
    """Truncate to where the logs diverge.

    `epoch` is the leader's largest epoch that is not above the last one here; in the leader's log
    it ends at `end_offset`.
    """

    epoch: int
    end_offset: int


class TruncateTo(NamedTuple):
    """The leader's log is shorter: truncate to its end."""

    offset: int


class StartOver(NamedTuple):
    """Delete everything and begin at the leader's log start, which is above the log end here."""

    offset: int


class ConfirmGaps(NamedTuple):
    """Keep the gaps below `offset`: the leader has no records there either."""

    offset: int


LogWork: TypeAlias = Append | TruncateToEpoch | TruncateTo | StartOver | ConfirmGaps


def position_of(log: Log) -> LogPosition:
    """Return where the log stands."""
    gap = log.unverified_gaps[0] if log.unverified_gaps else None
    epoch = log.epochs.latest if gap is None else log.epochs.epoch_at(gap.first_offset - 1)
    return LogPosition(
        log.log_end_offset,
        NO_EPOCH if epoch is None else epoch,
        log.log_start_offset,
        log.high_watermark,
        gap,
    )


def begin_to_follow(log: Log, now_ms: int) -> LogPosition:
    """Prepare the log for a new leader; return the position from which to fetch.

    A log without leader epochs is truncated to its high watermark: nothing shows where it diverges
    from the leader's log beyond that.
    """
    if log.epochs.latest is None:
        log.truncate_to(log.high_watermark, now_ms)
    return position_of(log)


def apply_leader_answer(log: Log, work: LogWork, now_ms: int) -> LogPosition:
    """Do what the leader's answer asks for; return where the log stands then.

    Raises:
        CorruptRecords: the records are damaged; none of them was appended.
        UnexpectedAppendOffset: the records begin below the log end.
    """
    match work:
        case Append():
            _append(log, work, now_ms)
        case TruncateToEpoch(epoch, end_offset):
            own_end, end = log.end_offset_for_epoch(epoch), OffsetAndEpoch(end_offset, epoch)
            _truncate(log, truncation_offset(own_end, end, log.log_end_offset), now_ms)
        case TruncateTo(offset):
            _truncate(log, offset, now_ms)
        case ConfirmGaps(offset):
            log.confirm_gaps_below(offset)
        case StartOver(offset):
            logger.warning("%s starts over at %d, the leader's log start", log, offset)
            log.truncate_fully_and_start_at(offset)
    return position_of(log)


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
        return  # the log has changed since the request was made: the records are fetched again
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
    """Return True if the log is empty and its start lies within the first batch fetched."""
    is_empty = log.log_start_offset == log.log_end_offset
    return is_empty and error.first_offset < log.log_end_offset <= error.last_offset
