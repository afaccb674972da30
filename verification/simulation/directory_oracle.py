"""Follows the committed records of directories: what a failure or a cordon may and may not change.

When a directory is no longer online, no partition is led from it, and no ISR counts on a replica in
it, unless that is the only member. A broker loses the leadership of a partition only for a reason.
A broker whose directories are all cordoned gets no replica that nobody assigned to it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from spindle.common.ids import NO_LEADER
from spindle.common.uuids import DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED, Uuid, uuid_text
from spindle.metadata.partitions import PartitionRegistration, merge, registration_of
from spindle.protocol.message import Message
from spindle.protocol.messages.metadata_records import (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from verification.simulation.record_oracle import RecordOracle
from verification.simulation.verdict import Verdict

Where = tuple[Uuid, int]
_ANYWHERE: Final = (DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING)


@dataclass(frozen=True, slots=True)
class _Broker:
    """A registered broker. `directories` are online; `cordoned` is None while it is unknown."""

    is_active: bool
    directories: tuple[Uuid, ...]
    cordoned: tuple[Uuid, ...] | None

    @property
    def is_cordoned(self) -> bool:
        cordoned = self.cordoned
        return (
            bool(self.directories)
            and cordoned is not None
            and all(directory in cordoned for directory in self.directories)
        )

    def serves(self, directory: Uuid) -> bool:
        """Return whether a replica that is recorded in the directory can be served."""
        return not self.directories or directory in (*_ANYWHERE, *self.directories)


class DirectoryOracle:
    """Checks the committed records that concern directories."""

    def __init__(self, records: RecordOracle, verdict: Verdict) -> None:
        self._records = records
        self._verdict = verdict
        self._brokers: dict[int, _Broker] = {}
        self._partitions: dict[Where, PartitionRegistration] = {}

    def committed(self, records: Sequence[Message]) -> None:
        """Check the next committed records."""
        # The records that move leaders away come before the one that says why.
        leaving = self._leaving(records)
        for record in records:
            match record:
                case PartitionRecord():
                    self._partitions[bytes(record.topic_id), record.partition_id] = registration_of(
                        record
                    )
                    self._placed(record)
                case PartitionChangeRecord():
                    self._changed(record, leaving)
                case RemoveTopicRecord():
                    topic_id = bytes(record.topic_id)
                    for where in [w for w in self._partitions if w[0] == topic_id]:
                        del self._partitions[where]
                case _:
                    self._broker_changed(record)

    # -- brokers

    def _broker_changed(self, record: Message) -> None:
        match record:
            case RegisterBrokerRecord():
                cordoned = record.cordoned_log_dirs
                self._brokers[record.broker_id] = _Broker(
                    not record.fenced and not record.in_controlled_shutdown,
                    tuple(map(bytes, record.log_dirs)),
                    None if cordoned is None else tuple(map(bytes, cordoned)),
                )
            case UnregisterBrokerRecord():
                self._brokers.pop(record.broker_id, None)
            case FenceBrokerRecord():
                self._set_active(record.id, is_active=False)
            case UnfenceBrokerRecord():
                self._set_active(record.id, is_active=True)
            case BrokerRegistrationChangeRecord():
                self._registration_changed(record)

    def _set_active(self, broker_id: int, *, is_active: bool) -> None:
        self._brokers[broker_id] = replace(self._brokers[broker_id], is_active=is_active)

    def _registration_changed(self, record: BrokerRegistrationChangeRecord) -> None:
        broker_id = record.broker_id
        if record.fenced or record.in_controlled_shutdown:
            self._set_active(broker_id, is_active=record.fenced < 0)
        if record.cordoned_log_dirs is not None:
            cordoned = tuple(map(bytes, record.cordoned_log_dirs))
            self._brokers[broker_id] = replace(self._brokers[broker_id], cordoned=cordoned)
        if record.log_dirs:
            online = tuple(map(bytes, record.log_dirs))
            gone = [d for d in self._brokers[broker_id].directories if d not in online]
            self._brokers[broker_id] = replace(self._brokers[broker_id], directories=online)
            for directory in gone:
                self._offline(broker_id, directory)

    def _offline(self, broker_id: int, directory: Uuid) -> None:
        """Check that nothing counts on the replicas of a directory that is offline."""
        for (topic_id, index), partition in self._partitions.items():
            if (
                broker_id in partition.replicas
                and partition.directory(broker_id) == directory
                and (
                    partition.leader == broker_id
                    or (broker_id in partition.isr and len(partition.isr) > 1)
                )
            ):
                self._verdict.violated(
                    f"directory {uuid_text(directory)} of broker {broker_id} is offline, but "
                    f"{self._name((topic_id, index))} has leader {partition.leader} and ISR "
                    f"{list(partition.isr)}"
                )

    # -- partitions

    def _placed(self, record: PartitionRecord) -> None:
        """Check a new partition. The simulation names no replicas when it creates a topic."""
        for broker_id in record.replicas:
            broker = self._brokers.get(broker_id)
            self._verdict.check(
                broker is None or not broker.is_cordoned,
                f"{self._name((bytes(record.topic_id), record.partition_id))} is placed on "
                f"{list(record.replicas)}, though all directories of {broker_id} are cordoned",
            )

    def _changed(
        self, record: PartitionChangeRecord, leaving: dict[int, tuple[Uuid, ...] | None]
    ) -> None:
        where = (bytes(record.topic_id), record.partition_id)
        before = self._partitions.get(where)
        if before is None:
            return
        after = self._partitions[where] = merge(before, record)
        for broker_id in after.isr:
            broker = self._brokers.get(broker_id)
            directory = after.directory(broker_id)
            is_new = broker_id not in before.isr or (broker_id == after.leader != before.leader)
            self._verdict.check(
                not is_new or broker is None or broker.serves(directory),
                f"broker {broker_id} joins the ISR of {self._name(where)} or leads it, with a "
                f"replica in directory {uuid_text(directory)}, which is offline",
            )
        if before.leader not in (NO_LEADER, after.leader):
            self._verdict.check(
                self._may_lose(before, after, leaving) or self._is_disturbed(where),
                f"broker {before.leader} is alive and has {self._name(where)} in an online "
                f"directory, but {after.leader} leads now",
            )

    def _is_disturbed(self, where: Where) -> bool:
        """Return whether unclean elections are asked for in the partition."""
        oracle = self._records.find(*where)
        return oracle is not None and oracle.may_lose

    def _may_lose(
        self,
        before: PartitionRegistration,
        after: PartitionRegistration,
        leaving: dict[int, tuple[Uuid, ...] | None],
    ) -> bool:
        """Return whether there is a reason for another leader, or none."""
        leader = before.leader
        broker = self._brokers.get(leader)
        if broker is None or not broker.is_active or leader not in after.replicas:
            return True
        if after.leader == after.replicas[0] or before.is_reassigning or after.is_reassigning:
            return True
        directories = leaving.get(leader, broker.directories)
        if directories is None or not broker.directories:
            return True
        return any(
            directory not in (*directories, *_ANYWHERE)
            for directory in (before.directory(leader), after.directory(leader))
        )

    def _leaving(self, records: Sequence[Message]) -> dict[int, tuple[Uuid, ...] | None]:
        """Return by broker the online directories after these records; None if it leaves."""
        leaving: dict[int, tuple[Uuid, ...] | None] = {}
        for record in records:
            match record:
                case RegisterBrokerRecord() | UnregisterBrokerRecord():
                    leaving[record.broker_id] = None
                case FenceBrokerRecord():
                    leaving[record.id] = None
                case BrokerRegistrationChangeRecord():
                    if record.fenced > 0 or record.in_controlled_shutdown:
                        leaving[record.broker_id] = None
                    elif record.log_dirs and record.broker_id not in leaving:
                        leaving[record.broker_id] = tuple(map(bytes, record.log_dirs))
        return leaving

    def _name(self, where: Where) -> str:
        oracle = self._records.find(*where)
        return f"partition {where[1]} of {uuid_text(where[0])}" if oracle is None else str(oracle)
