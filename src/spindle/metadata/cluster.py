"""Registered brokers and controllers in the image (KIP-631, KIP-858, KIP-919, KIP-1066)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from spindle.common.errors import ProtocolViolation
from spindle.common.ids import Endpoint
from spindle.common.uuids import (
    DIRECTORY_LOST,
    DIRECTORY_MIGRATING,
    DIRECTORY_UNASSIGNED,
    Uuid,
    uuid_sort_key,
)
from spindle.metadata.broker_registration import features_of, listener_endpoints
from spindle.metadata.features import VersionRange
from spindle.metadata.immutable import immutable
from spindle.metadata.map_editor import MapEditor
from spindle.protocol.messages.metadata_records import (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UnregisterControllerRecord,
)


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """The registration of a broker.

    `directories` are the online log directories, sorted by id. It is empty if the broker sent none
    (before 3.7-IV2); then every directory counts as online. `cordoned_directories` has the broker's
    order, and is None until the broker has sent them. `register_offset` is the offset of the
    RegisterBrokerRecord; a broker that has read that far is caught up.
    """

    broker_id: int
    epoch: int
    incarnation_id: Uuid
    endpoints: tuple[Endpoint, ...]
    features: Mapping[str, VersionRange]
    rack: str | None
    is_fenced: bool
    is_in_controlled_shutdown: bool
    directories: tuple[Uuid, ...]
    cordoned_directories: tuple[Uuid, ...] | None
    is_migrating_zk_broker: bool = False
    register_offset: int = field(default=-1, compare=False)

    @property
    def is_active(self) -> bool:
        """True if the broker may lead and join ISRs: neither fenced nor shutting down."""
        return not self.is_fenced and not self.is_in_controlled_shutdown

    def has_online_directory(self, directory: Uuid) -> bool:
        """Return whether a replica recorded in this directory can be served (KIP-858)."""
        if directory in (DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING):
            return True
        if directory == DIRECTORY_LOST:
            return False
        return not self.directories or directory in self.directories

    def has_uncordoned_directory(self) -> bool:
        """Return whether the broker has a directory where new replicas may be placed."""
        cordoned = self.cordoned_directories
        if not self.directories or cordoned is None:
            return True
        return any(directory not in cordoned for directory in self.directories)

    def default_directory(self) -> Uuid:
        """Return the directory id for a new replica: that of the only directory, otherwise
        unassigned."""
        if not self.directories:
            return DIRECTORY_MIGRATING
        return self.directories[0] if len(self.directories) == 1 else DIRECTORY_UNASSIGNED

    def endpoint(self, listener: str) -> Endpoint | None:
        for endpoint in self.endpoints:
            if endpoint.listener == listener:
                return endpoint
        return None


@dataclass(frozen=True, slots=True)
class ControllerRegistration:
    """The registration of a controller (KIP-919)."""

    controller_id: int
    incarnation_id: Uuid
    is_zk_migration_ready: bool
    endpoints: tuple[Endpoint, ...]
    features: Mapping[str, VersionRange]


@immutable
class ClusterImage:
    """Registrations by node id."""

    brokers: Mapping[int, BrokerRegistration]
    controllers: Mapping[int, ControllerRegistration]

    def is_active(self, broker_id: int) -> bool:
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.is_active

    def default_directory(self, broker_id: int) -> Uuid:
        broker = self.brokers.get(broker_id)
        return DIRECTORY_UNASSIGNED if broker is None else broker.default_directory()

    def has_online_directory(self, broker_id: int, directory: Uuid) -> bool:
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.has_online_directory(directory)


EMPTY_CLUSTER = ClusterImage(brokers={}, controllers={})


def sorted_directories(directories: Sequence[Uuid]) -> tuple[Uuid, ...]:
    """Return the ids in Kafka's order: by signed halves, the high half first."""
    return tuple(sorted((bytes(directory) for directory in directories), key=uuid_sort_key))


class ClusterDelta:
    """Changes of registrations. `changed_brokers` maps an unregistered broker to None."""

    def __init__(self, base: ClusterImage) -> None:
        self.base = base
        self._brokers = MapEditor(base.brokers)
        self._controllers = MapEditor(base.controllers)
        self._touched: dict[int, None] = {}
        self.changed_in_epoch: dict[int, None] = {}
        """Brokers that registered again, or lost a directory, in the same epoch."""

    def clear(self) -> None:
        """Forget every registration, as at the start of a snapshot."""
        self._brokers.clear()
        self._controllers.clear()
        self._touched = dict.fromkeys(self.base.brokers)

    def registration(self, broker_id: int) -> BrokerRegistration | None:
        """Return the registration of a broker after the records so far."""
        return self._brokers.get(broker_id)

    @property
    def changed_brokers(self) -> dict[int, BrokerRegistration | None]:
        """Brokers whose registration differs from the base, by id."""
        return {
            broker_id: self._brokers.get(broker_id)
            for broker_id in self._touched
            if self._brokers.get(broker_id) != self.base.brokers.get(broker_id)
        }

    def replay_register(self, record: RegisterBrokerRecord, offset: int) -> None:
        cordoned = record.cordoned_log_dirs
        known = self._brokers.get(record.broker_id)
        if known is not None and known.epoch == record.broker_epoch:
            self.changed_in_epoch[record.broker_id] = None
        self._set(
            BrokerRegistration(
                broker_id=record.broker_id,
                epoch=record.broker_epoch,
                incarnation_id=bytes(record.incarnation_id),
                endpoints=listener_endpoints(record.end_points),
                features=features_of(record.features),
                rack=record.rack,
                is_fenced=record.fenced,
                is_in_controlled_shutdown=record.in_controlled_shutdown,
                directories=sorted_directories(record.log_dirs),
                cordoned_directories=(
                    None if cordoned is None else tuple(bytes(entry) for entry in cordoned)
                ),
                is_migrating_zk_broker=record.is_migrating_zk_broker,
                register_offset=offset,
            )
        )

    def replay_unregister(self, record: UnregisterBrokerRecord) -> None:
        self._broker(record.broker_id, record.broker_epoch)
        self._brokers.remove(record.broker_id)
        self._touched[record.broker_id] = None

    def replay_fence(self, record: FenceBrokerRecord) -> None:
        self._set(replace(self._broker(record.id, record.epoch), is_fenced=True))

    def replay_unfence(self, record: UnfenceBrokerRecord) -> None:
        self._set(replace(self._broker(record.id, record.epoch), is_fenced=False))

    def replay_change(self, record: BrokerRegistrationChangeRecord) -> None:
        broker = self._broker(record.broker_id, record.broker_epoch)
        if record.fenced not in (-1, 0, 1) or record.in_controlled_shutdown not in (0, 1):
            raise ProtocolViolation(
                f"BrokerRegistrationChangeRecord of broker {record.broker_id}: "
                f"fenced={record.fenced}, inControlledShutdown={record.in_controlled_shutdown}"
            )
        if record.fenced:
            broker = replace(broker, is_fenced=record.fenced > 0)
        if record.in_controlled_shutdown:
            broker = replace(broker, is_in_controlled_shutdown=True)
        if record.log_dirs:
            broker = replace(broker, directories=sorted_directories(record.log_dirs))
            self.changed_in_epoch[record.broker_id] = None
        if record.cordoned_log_dirs is not None:
            cordoned = tuple(bytes(entry) for entry in record.cordoned_log_dirs)
            broker = replace(broker, cordoned_directories=cordoned)
        self._set(broker)

    def replay_register_controller(self, record: RegisterControllerRecord) -> None:
        self._controllers.set(
            record.controller_id,
            ControllerRegistration(
                controller_id=record.controller_id,
                incarnation_id=bytes(record.incarnation_id),
                is_zk_migration_ready=record.zk_migration_ready,
                endpoints=listener_endpoints(record.end_points),
                features=features_of(record.features),
            ),
        )

    def replay_unregister_controller(self, record: UnregisterControllerRecord) -> None:
        if self._controllers.remove(record.controller_id) is None:
            raise ProtocolViolation(
                f"UnregisterControllerRecord for unknown controller {record.controller_id}"
            )

    def _broker(self, broker_id: int, epoch: int) -> BrokerRegistration:
        broker = self._brokers.get(broker_id)
        if broker is None:
            raise ProtocolViolation(f"record for broker {broker_id}, which is not registered")
        if broker.epoch != epoch:
            raise ProtocolViolation(
                f"record for broker {broker_id} epoch {epoch}, registered is {broker.epoch}"
            )
        return broker

    def _set(self, broker: BrokerRegistration) -> None:
        self._brokers.set(broker.broker_id, broker)
        self._touched[broker.broker_id] = None

    def apply(self) -> ClusterImage:
        return ClusterImage(self._brokers.result(), self._controllers.result())


def directories_changed_in_epoch(delta: ClusterDelta) -> Iterator[tuple[int, Sequence[Uuid]]]:
    """Yield (broker id, kept directories) for brokers whose directories changed while they ran.

    Logs in these directories are as they were. All others have failed, were offline, or are new: a
    replica that was in one of them may begin again, there or elsewhere, without its records.
    """
    for broker_id in delta.changed_in_epoch:
        before, now = delta.base.brokers.get(broker_id), delta.registration(broker_id)
        if before is None or now is None:
            continue
        # With the same directories as before, one may have gone and come back in between.
        is_same = before.directories == now.directories
        kept = [] if is_same else [d for d in now.directories if d in before.directories]
        yield broker_id, kept
