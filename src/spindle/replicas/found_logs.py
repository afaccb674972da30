"""Choose the log of a replica among the logs of its name that a start finds on disk.

The topic id identifies it. A log may have lost its topic id: power failed before a new log's
`partition.metadata` was on the device, or the file was damaged or removed. The lack of an id does
not show that a log belongs to another topic. If the replica may lead, the log in the directory that
the metadata records is its own: this broker has already renamed any log of an earlier topic of that
name. A replica that is out of sync may not have done so yet, because the controller records the
only directory of a broker when it creates a topic. Such a log is renamed, and the records are
fetched from the leader.
"""

from collections.abc import Sequence
from typing import Final, TypeAlias

from spindle.common.ids import OffsetAndEpoch
from spindle.common.uuids import DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED, Uuid
from spindle.disks.log_directory import LogDirectory
from spindle.log.log import Log
from spindle.metadata.partitions import PartitionRegistration

FoundLog: TypeAlias = tuple[Log, LogDirectory]
"""A log and the directory that has it."""

_NOT_RECORDED: Final = (DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING)


def own_log(
    found: Sequence[FoundLog], topic_id: Uuid, partition: PartitionRegistration, broker_id: int
) -> FoundLog | None:
    """Return the log with the topic id, or None; of two, return the one with more records.

    Two exist if one was offline when the other was created. It is unknown which is newer: take the
    one with the higher last epoch, then end offset, then the one the metadata names. A log without
    epochs has started over at its leader's log start: it is newer than a log that ends before. If
    no log has the topic id, return one without a topic id that is in the recorded directory,
    provided that it is empty or the replica may lead. If no directory is recorded yet, return an
    empty one.
    """
    recorded = partition.directory(broker_id)

    def is_in_place(place: FoundLog) -> bool:
        log, directory = place
        if log.topic_id is not None:
            return False
        if not log.size_bytes and recorded in _NOT_RECORDED:
            return True
        is_known = not log.size_bytes or _may_lead(partition, broker_id)
        return is_known and directory.directory_id == recorded

    own = [place for place in found if place[0].topic_id == topic_id]
    own = own or [place for place in found if is_in_place(place)]

    def rank(place: FoundLog) -> tuple[int, int, bool]:
        log, directory = place
        return (_last_epoch(log), log.log_end_offset, directory.directory_id == recorded)

    if not own:
        return None
    longest = max(own, key=lambda place: (place[0].log_end_offset, rank(place)))
    has_started_over = _last_epoch(longest[0]) < 0
    return longest if has_started_over else max(own, key=rank)


def _last_epoch(log: Log) -> int:
    epoch = log.epochs.latest
    return -1 if epoch is None else epoch


def may_be_own_log(
    found: Sequence[FoundLog], partition: PartitionRegistration, broker_id: int
) -> bool:
    """Return whether one of these logs may have committed records that no other replica has.

    Call it if `own_log` returned None. Such records may exist if the metadata records no
    directory, the replica may lead, and a log has records but no topic id: an empty log created
    in its place could become leader.
    """
    is_open = partition.directory(broker_id) in _NOT_RECORDED and _may_lead(partition, broker_id)
    return is_open and any(log.topic_id is None and log.size_bytes for log, _ in found)


def _may_lead(partition: PartitionRegistration, broker_id: int) -> bool:
    eligible = (partition.leader, *partition.isr, *partition.elr, *partition.last_known_elr)
    return broker_id in eligible


def reaches(log: Log, end: OffsetAndEpoch) -> bool:
    """Return whether a log has, or has removed, all records of another one with this end.

    Args:
        end: the end offset of the other log, and the epoch of its last batch.
    """
    if log.log_start_offset >= end.offset:
        return True
    return log.end_offset_for_epoch(end.epoch).offset >= end.offset
