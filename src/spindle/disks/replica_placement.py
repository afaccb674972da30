"""Choose the log directory of a broker for a new replica (KIP-858, KIP-1066)."""

import logging
from collections.abc import Collection, Sequence

from spindle.common.ids import TopicPartition
from spindle.common.uuids import (
    DIRECTORY_MIGRATING,
    DIRECTORY_UNASSIGNED,
    Uuid,
    uuid_text,
)
from spindle.disks.log_directory import LogDirectory
from spindle.metadata.partitions import PartitionRegistration

log = logging.getLogger(__name__)


def choose_directory(
    where: TopicPartition,
    directories: Sequence[LogDirectory],
    recorded: Uuid,
    preferred: LogDirectory | None,
    cordoned: Collection[str],
) -> LogDirectory | None:
    """Choose the directory of a replica that this broker does not have yet.

    Args:
        directories: all of the broker, in the order of `log.dirs`.
        recorded: the directory id in the partition's registration.
        preferred: named before by AlterReplicaLogDirs; outranks a recorded one that is online. A
            wish of a client does not show that the records of an offline directory are lost.
        cordoned: paths that take no new replicas.

    Returns:
        None if every directory is offline, or if the replica may already exist in an offline one:
        its recorded directory is none of those that are online.
    """
    in_place = next(
        (d for d in directories if d.directory_id == recorded and not d.is_offline), None
    )
    if (
        in_place is None
        and recorded != DIRECTORY_UNASSIGNED
        and any(d.is_offline for d in directories)
    ):
        log.warning(
            "not creating %s: it is recorded in directory %s and a directory is offline",
            where,
            uuid_text(recorded),
        )
        return None
    if preferred is not None and not preferred.is_offline:
        return preferred
    if in_place is not None:
        return in_place
    return least_loaded(directories, cordoned)


def is_lost_log_needed(
    where: TopicPartition,
    topic_id: Uuid,
    partition: PartitionRegistration,
    broker_id: int,
    directories: Sequence[LogDirectory],
) -> bool:
    """Return whether creating an empty log in place of a lost one could lose records.

    The log is lost if the metadata records a directory that the broker does not have (it was
    replaced, or taken out of `log.dirs`), or one from which the log is missing (`missing_from`).
    The metadata may still count the replica among those that have all committed records. Once a new
    log's directory was recorded, the replica could be elected with it, and the other replicas would
    delete all records that the new log lacks. The only replica would begin anew at offset 0,
    although its log may only be absent.
    """
    recorded = partition.directory(broker_id)
    is_lost = recorded not in (DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING) and all(
        directory.directory_id != recorded for directory in directories
    )
    may_lead = (*partition.isr, *partition.elr, *partition.last_known_elr)
    is_missing = missing_from(where, topic_id, recorded, directories) is not None
    return (is_lost or is_missing) and broker_id in may_lead


def missing_from(
    where: TopicPartition, topic_id: Uuid, recorded: Uuid, directories: Sequence[LogDirectory]
) -> LogDirectory | None:
    """Return the directory from which the log of a replica may be missing; None if there is none.

    The folder of the log was removed, or lost with a part of the file system. If no directory is
    recorded (before KIP-858, and for a log that was not created yet), it is one whose checkpoints
    show records.
    """
    for directory in directories:
        if directory.is_offline:
            continue
        if directory.directory_id == recorded:
            return directory if directory.store.may_lack(where, topic_id) else None
        if recorded in (DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING) and (
            directory.store.has_records_missing(where, topic_id)
        ):
            return directory
    return None


def least_loaded(
    directories: Sequence[LogDirectory], cordoned: Collection[str]
) -> LogDirectory | None:
    """Return the online directory with the fewest logs, the first of them on a tie.

    Skip cordoned directories; if every online one is cordoned, return the first (KIP-1066). Return
    None if every directory is offline.
    """
    online = [d for d in directories if not d.is_offline]
    if not online:
        return None
    candidates = [d for d in online if d.path not in cordoned]
    if not candidates:
        return online[0]
    return min(candidates, key=lambda d: d.log_count)
