"""Partition registrations, and how records change them (KIP-631, KIP-858, KIP-966)."""

from dataclasses import replace
from typing import Final

from spindle.common.errors import ProtocolViolation
from spindle.common.ids import NO_LEADER
from spindle.common.uuids import DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED, Uuid
from spindle.metadata.immutable import immutable, shared
from spindle.protocol.messages.metadata_records import PartitionChangeRecord, PartitionRecord

RECOVERED: Final = 0
RECOVERING: Final = 1
"""The leader came from an unclean election and has not yet shown that its log is in order."""
NO_LEADER_CHANGE: Final = -2
NO_RECOVERY_CHANGE: Final = -1


@immutable
class PartitionRegistration:
    """The committed state of one partition.

    `directories[i]` is the log directory of `replicas[i]` on that broker. `leader_epoch` rises with
    every change record that names a leader, `partition_epoch` with every change record.

    Invariants: 1. `len(directories) == len(replicas)`. 2. `leader` is -1 or in `replicas`.
    3. `isr`, `elr` and `last_known_elr` hold replicas only (see `check`).
    """

    replicas: tuple[int, ...]
    directories: tuple[Uuid, ...]
    isr: tuple[int, ...]
    removing_replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    elr: tuple[int, ...]
    last_known_elr: tuple[int, ...]
    leader: int
    leader_recovery_state: int
    leader_epoch: int
    partition_epoch: int

    @property
    def preferred_leader(self) -> int:
        return self.replicas[0] if self.replicas else NO_LEADER

    @property
    def is_reassigning(self) -> bool:
        return bool(self.adding_replicas or self.removing_replicas)

    def directory(self, broker_id: int) -> Uuid:
        """Return the directory of the broker's replica.

        Raises:
            ValueError: the broker holds no replica.
        """
        return self.directories[self.replicas.index(broker_id)]

    def check(self) -> None:
        """Assert the invariants."""
        assert len(self.directories) == len(self.replicas), self
        assert self.leader == NO_LEADER or self.leader in self.replicas, self
        for members in (self.isr, self.elr, self.last_known_elr):
            assert all(member in self.replicas for member in members), self

    def to_record(self, topic_id: Uuid, partition_id: int, record_version: int) -> PartitionRecord:
        """Return the record of a snapshot. Below record version 1 directories do not exist."""
        with_elr = record_version >= 2
        return PartitionRecord(
            partition_id=partition_id,
            topic_id=topic_id,
            replicas=list(self.replicas),
            isr=list(self.isr),
            removing_replicas=list(self.removing_replicas),
            adding_replicas=list(self.adding_replicas),
            leader=self.leader,
            leader_recovery_state=self.leader_recovery_state,
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
            directories=list(self.directories) if record_version >= 1 else [],
            eligible_leader_replicas=list(self.elr) if with_elr and self.elr else None,
            last_known_elr=list(self.last_known_elr) if with_elr and self.last_known_elr else None,
        )


def registration_of(record: PartitionRecord) -> PartitionRegistration:
    """Return the registration that a PartitionRecord establishes.

    Raises:
        ProtocolViolation: directories are given, but not one for each replica.
    """
    replicas = shared(tuple(record.replicas))
    return PartitionRegistration(
        replicas=replicas,
        directories=_directories(record, record.directories, len(replicas)),
        isr=shared(tuple(record.isr)),
        removing_replicas=tuple(record.removing_replicas),
        adding_replicas=tuple(record.adding_replicas),
        elr=tuple(record.eligible_leader_replicas or ()),
        last_known_elr=tuple(record.last_known_elr or ()),
        leader=record.leader,
        leader_recovery_state=record.leader_recovery_state,
        leader_epoch=record.leader_epoch,
        partition_epoch=record.partition_epoch,
    )


def merge(old: PartitionRegistration, record: PartitionChangeRecord) -> PartitionRegistration:
    """Return the registration after a change record. Null fields mean "as before", empty ones
    "none".

    Raises:
        ProtocolViolation: directories are given, but not one for each replica.
    """
    replicas = old.replicas if record.replicas is None else shared(tuple(record.replicas))
    if record.directories is not None:
        directories = _directories(record, record.directories, len(replicas))
    elif record.replicas is not None:
        directories = directories_for(old, replicas)
    else:
        directories = old.directories
    leader_changes = record.leader != NO_LEADER_CHANGE
    return PartitionRegistration(
        replicas=replicas,
        directories=directories,
        isr=_changed(old.isr, record.isr),
        removing_replicas=_changed(old.removing_replicas, record.removing_replicas),
        adding_replicas=_changed(old.adding_replicas, record.adding_replicas),
        elr=_changed(old.elr, record.eligible_leader_replicas),
        last_known_elr=_changed(old.last_known_elr, record.last_known_elr),
        leader=record.leader if leader_changes else old.leader,
        leader_recovery_state=(
            old.leader_recovery_state
            if record.leader_recovery_state == NO_RECOVERY_CHANGE
            else record.leader_recovery_state
        ),
        leader_epoch=old.leader_epoch + 1 if leader_changes else old.leader_epoch,
        partition_epoch=old.partition_epoch + 1,
    )


def without_elr(old: PartitionRegistration) -> PartitionRegistration:
    """Return the registration after a ClearElrRecord; no epoch moves."""
    return replace(old, elr=(), last_known_elr=())


def directories_for(old: PartitionRegistration, replicas: tuple[int, ...]) -> tuple[Uuid, ...]:
    """Return directories by broker: known ones for brokers that stay, unassigned for new ones."""
    known = dict(zip(old.replicas, old.directories, strict=True))
    return shared(tuple([known.get(replica, DIRECTORY_UNASSIGNED) for replica in replicas]))


def _changed(old: tuple[int, ...], new: list[int] | None) -> tuple[int, ...]:
    return old if new is None else shared(tuple(new))


def _directories(
    record: PartitionRecord | PartitionChangeRecord, given: list[Uuid], replica_count: int
) -> tuple[Uuid, ...]:
    if not given:
        return shared((DIRECTORY_MIGRATING,) * replica_count)
    if len(given) != replica_count:
        raise ProtocolViolation(
            f"partition {record.partition_id} has {replica_count} replicas "
            f"and {len(given)} directories"
        )
    return shared(tuple([bytes(directory) for directory in given]))
