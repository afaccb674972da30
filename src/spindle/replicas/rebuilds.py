"""Rebuilds of replicas: the log is renamed, and a new log is fetched from the leader.

A replica must leave the ISR and the ELR before its log is renamed: if an empty replica were
elected, the others would delete their records. The broker reports the directory of the replica as
`DIRECTORY_LOST` (AssignReplicasToDirs, KIP-858). The controller then removes it from the ISR, and
does not elect it, not even uncleanly. When the new log has all committed records, the broker
reports the directory again. The former log stays in a `-delete` directory until then.

Belongs to the event loop; `runtime.broker.replica_rebuilder` keeps the order.
"""

from collections.abc import Iterator
from enum import Enum
from typing import Final

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import NO_LEADER, TopicPartition
from spindle.common.text import size_text
from spindle.common.uuids import DIRECTORY_LOST
from spindle.log.log import Log
from spindle.metadata.partitions import PartitionRegistration
from spindle.replicas.partition import Partition

_ENDED_KEPT: Final = 200
"""Number of finished rebuilds to remember; the oldest are dropped."""


class RebuildState(Enum):
    """The state of a rebuild, with its name on the wire."""

    LEAVING = "leaving the ISR"
    """Waiting for the controller to remove the replica from the ISR; the log is unchanged."""
    COPYING = "copying"
    """The new log lacks committed records. The replica cannot be elected."""
    JOINING = "joining the ISR"
    """The new log had all committed records; waiting for the leader to add it to the ISR."""
    RESTORING = "restoring the former log"
    """The rebuild has failed. Until the leader receives a fetch for the former log, it may assume
    the length of the new one."""
    DONE = "done"
    FAILED = "failed"


_ENDS: Final = (RebuildState.DONE, RebuildState.FAILED)


class Rebuild:
    """One replica that is rebuilt.

    Attributes:
        former: the log before the rebuild; renamed from COPYING on.
        size_bytes: of the former log.
        is_cancelled: True if the former log must be restored.
        failure: why it failed, and what the replica is now; empty otherwise.
    """

    __slots__ = ("failure", "former", "is_cancelled", "partition", "size_bytes", "state")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.former: Log = partition.log
        self.size_bytes = partition.log.size_bytes
        self.state = RebuildState.LEAVING
        self.is_cancelled = False
        self.failure = ""

    def __str__(self) -> str:
        return f"{self.partition.topic_partition} in {self.partition.directory.path}"

    @property
    def is_under_way(self) -> bool:
        return self.state not in _ENDS

    @property
    def copied_bytes(self) -> int:
        """The bytes of the new log; 0 before there is one."""
        log = self.partition.log
        return 0 if log is self.former else log.size_bytes

    @property
    def missing_bytes(self) -> int:
        """The size of the former log minus that of the new one, in bytes."""
        return max(self.size_bytes - self.copied_bytes, 0) if self.is_under_way else 0


class Rebuilds:
    """The rebuilds of this broker: the running ones, and the last finished ones."""

    def __init__(self) -> None:
        self._rebuilds: dict[TopicPartition, Rebuild] = {}

    def __iter__(self) -> Iterator[Rebuild]:
        return iter(list(self._rebuilds.values()))

    def begin(self, partition: Partition) -> Rebuild:
        """Add a rebuild in place of an earlier one that has ended."""
        where = partition.topic_partition
        self._rebuilds.pop(where, None)
        rebuild = self._rebuilds[where] = Rebuild(partition)
        return rebuild

    def end(self, rebuild: Rebuild, failure: str = "") -> None:
        """Record that a rebuild succeeded, or why it failed."""
        rebuild.state = RebuildState.FAILED if failure else RebuildState.DONE
        rebuild.failure = failure
        ended = [rebuild for rebuild in self if not rebuild.is_under_way]
        for oldest in ended[: max(len(ended) - _ENDED_KEPT, 0)]:
            del self._rebuilds[oldest.partition.topic_partition]

    def running(self, where: TopicPartition) -> Rebuild | None:
        """Return the running rebuild of a replica, or None."""
        rebuild = self._rebuilds.get(where)
        return rebuild if rebuild is not None and rebuild.is_under_way else None

    def hides(self, partition: Partition) -> bool:
        """Return True while the replica's directory must not be reported to the controller."""
        rebuild = self._rebuilds.get(partition.topic_partition)
        return (
            rebuild is not None
            and rebuild.partition is partition
            and rebuild.is_under_way
            and rebuild.state is not RebuildState.JOINING
        )

    def must_stay_lost(self, partition: Partition) -> bool:
        """Return True while the log may lack committed records, so nobody may elect it."""
        rebuild = self.running(partition.topic_partition)
        return (
            rebuild is not None
            and self.hides(partition)
            and rebuild.state is not RebuildState.LEAVING
        )


def check_may_leave(
    where: TopicPartition, registration: PartitionRegistration, broker_id: int, min_isr: int
) -> None:
    """Refuse a rebuild if the other replicas cannot replace this one meanwhile.

    Args:
        min_isr: `min.insync.replicas` of the topic.

    Raises:
        ApiError: INVALID_REQUEST.
    """
    leader, isr = registration.leader, registration.isr
    if leader == NO_LEADER:
        raise refused(
            f"{where} has no leader to copy from; its ISR is {list(isr)}: first bring one of these "
            "brokers back"
        )
    if leader == broker_id:
        raise refused(
            f"broker {broker_id} is the leader of {where}, and only a follower is rebuilt: first "
            "let another replica lead, for instance with `spindle kafka reassign-partitions` and "
            f"the same replicas in another order, then `spindle topic elect {where}`"
        )
    if broker_id in registration.removing_replicas:
        raise refused(
            f"{where} is being reassigned away from broker {broker_id}: its replica is deleted "
            "when that is done"
        )
    others = [number for number in isr if number != broker_id]
    if not others:
        raise refused(
            f"broker {broker_id} is the only member of the ISR of {where}: first bring another "
            "replica in sync"
        )
    wanted = min(min_isr, len(registration.replicas))
    if len(others) < wanted:
        raise refused(
            f"without broker {broker_id}, the ISR of {where} is {others}: {len(others)} of at "
            f"least {wanted} (min.insync.replicas), so producers with acks=all would be refused, "
            "and the rebuilt replica could be elected: first bring more replicas in sync, or lower "
            "min.insync.replicas of the topic until the rebuild is done"
        )


def check_has_left(
    where: TopicPartition, registration: PartitionRegistration, broker_id: int
) -> None:
    """Refuse to rename the log while the replica may be elected.

    Raises:
        ApiError: INVALID_REQUEST.
    """
    eligible = (*registration.isr, *registration.elr, *registration.last_known_elr)
    if registration.leader == broker_id or broker_id in eligible:
        raise refused(
            f"the controller keeps broker {broker_id} among the replicas of {where} that may lead: "
            f"ISR {list(registration.isr)}, ELR {list(registration.elr)}: first bring the other "
            "replicas in sync"
        )
    if registration.directory(broker_id) != DIRECTORY_LOST:
        raise refused(f"the controller records the directory of {where} again: ask again")


def check_space(rebuild_of: Partition, usable_bytes: int, promised_bytes: int) -> None:
    """Refuse a rebuild that does not fit: the old log keeps its space until the rebuild ends.

    Args:
        usable_bytes: free space of the directory's file system; -1 if unknown.
        promised_bytes: space that running rebuilds in this directory will still need.

    Raises:
        ApiError: INVALID_REQUEST.
    """
    needed = rebuild_of.log.size_bytes + promised_bytes
    if 0 <= usable_bytes < needed:
        raise refused(
            f"{rebuild_of.directory.path} has {size_text(usable_bytes)} left, and a rebuild of "
            f"{rebuild_of.topic_partition} needs {size_text(needed)}, because the present log "
            "stays until the new one is in sync: first make room"
        )


def refused(text: str) -> ApiError:
    """Return a refusal with a sentence for people."""
    return ApiError(ErrorCode.INVALID_REQUEST, text)
