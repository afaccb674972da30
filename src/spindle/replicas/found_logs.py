"""Which of the logs of one name that a start finds on disk is that of a replica.

Its topic id says so. A log may have lost that: power failed before a new log's `partition.metadata`
was on the device, or the file was damaged or removed. The lack of an id does not show that a log
belongs to another topic. The metadata records a directory only after this broker has reported it,
with the replica's log in it under the plain name. So a log there is that of the replica.
"""

from collections.abc import Sequence
from typing import Final, TypeAlias

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
    """Return the replica's log among those found; None if there is none.

    Logs with the topic id come first. There are two if one directory was offline when the other
    log was created; neither is known to be newer, so the order is: higher last epoch, higher end
    offset, directory named by the metadata. Otherwise take a log without a topic id if it is in
    the recorded directory, or if it is empty and no directory is recorded yet.
    """
    recorded = partition.directory(broker_id)

    def is_in_place(place: FoundLog) -> bool:
        log, directory = place
        is_new = not log.size_bytes and recorded in _NOT_RECORDED
        return log.topic_id is None and (is_new or directory.directory_id == recorded)

    own = [place for place in found if place[0].topic_id == topic_id]
    own = own or [place for place in found if is_in_place(place)]

    def rank(place: FoundLog) -> tuple[int, int, bool]:
        log, directory = place
        epoch = log.latest_epoch()
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
    may_lead = (*partition.isr, *partition.elr, *partition.last_known_elr)
    is_open = partition.directory(broker_id) in _NOT_RECORDED and broker_id in may_lead
    return is_open and any(log.topic_id is None and log.size_bytes for log, _ in found)
