"""Which of the logs of one name that a start finds on disk is that of a replica.

Its topic id says so. A log may have lost that: power failed before a new log's `partition.metadata`
was on the device, or the file was damaged or removed. The lack of an id does not show that a log
belongs to another topic. A log in the directory that the metadata records is that of the replica,
if the replica may lead: this broker has then put aside what an earlier topic of the name had left.
A replica that is out of sync may not have come so far: the controller records the only directory of
a broker as it creates a topic. Its records are set aside, and copied again from the leader.
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
    """Return the log of the right topic id; of two, the one that has more. None if there is none.

    One was offline when the other took its place. Neither copy is known to be newest: take the one
    with the higher last epoch, then end offset, then the one the metadata names. Without any,
    return one that has lost its topic id, if it is in the recorded directory and empty, or the
    replica may lead. An empty one will do if none is recorded yet.
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
        epoch = log.epochs.latest
        is_recorded = directory.directory_id == recorded
        return (-1 if epoch is None else epoch, log.log_end_offset, is_recorded)

    return max(own, key=rank) if own else None


def may_be_own_log(
    found: Sequence[FoundLog], partition: PartitionRegistration, broker_id: int
) -> bool:
    """Return whether one of these logs may have committed records that no other replica has.

    To be asked if none of them is the replica's as far as is known: the metadata records no
    directory for it, and a log has records and no topic id. An empty log in its place could lead.
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
