"""Registration of brokers and controllers (KIP-631, KIP-858, KIP-919, KIP-966)."""

from collections.abc import Iterable, Mapping

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.uuids import Uuid, is_reserved_directory_id, uuid_text
from spindle.controller.broker_changes import BrokerChangeRecords
from spindle.controller.broker_sessions import BrokerHeartbeatManager
from spindle.controller.decision import Decision, OperationContext
from spindle.metadata.broker_registration import (
    FeatureRow,
    feature_rows,
    features_of,
    listener_endpoints,
    listener_rows,
)
from spindle.metadata.cluster import BrokerRegistration
from spindle.metadata.features import (
    CONTROLLER_REGISTRATION_LEVEL,
    CONTROLLER_UNREGISTRATION_LEVEL,
    CORDONED_DIRECTORIES_LEVEL,
    DIRECTORY_ASSIGNMENT_LEVEL,
    KRAFT_VERSION,
    METADATA_VERSION,
    VersionRange,
)
from spindle.metadata.image import MetadataImage
from spindle.protocol import versions
from spindle.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from spindle.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from spindle.protocol.messages.metadata_records import (
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnregisterControllerRecord,
)
from spindle.protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from spindle.protocol.messages.unregister_controller import (
    UnregisterControllerRequest,
    UnregisterControllerResponse,
)


def register_broker(
    given: OperationContext, request: BrokerRegistrationRequest
) -> Decision[BrokerRegistrationResponse]:
    """Register a broker. Its epoch is `next_write_offset`, unless the same process registers again.

    If the broker runs in this controller's process, its previous incarnation is known to have
    ended, and the new one need not wait for the end of its session.

    Raises:
        ApiError: INCONSISTENT_CLUSTER_ID, DUPLICATE_BROKER_REGISTRATION, INVALID_REGISTRATION or
            UNSUPPORTED_VERSION.
    """
    image = given.image
    is_own_process = given.is_own_process and request.broker_id == given.context.settings.node_id
    _check_id("broker", request.broker_id)
    existing = image.cluster.brokers.get(request.broker_id)
    _check_cluster_id(request.cluster_id, given.context.settings.cluster_id)
    if not is_own_process:
        _check_session(existing, given.heartbeats, request, given.now_ms)
    if request.is_migrating_zk_broker:
        raise ApiError(
            ErrorCode.BROKER_ID_NOT_REGISTERED, "Controller does not support migrating ZK brokers."
        )
    knows_directories = image.metadata_version >= DIRECTORY_ASSIGNMENT_LEVEL
    if knows_directories:
        _check_directories(image, request.broker_id, request.log_dirs)
    levels = finalized_levels(image, given.kraft_version)
    check_features(levels, request.features, f"broker {request.broker_id}")

    record = _record(request, given.next_write_offset, knows_directories=knows_directories)
    changes = BrokerChangeRecords(image, given.context.settings)
    if existing is not None and existing.incarnation_id == request.incarnation_id:
        record.fenced = existing.is_fenced
        record.in_controlled_shutdown = existing.is_in_controlled_shutdown
        record.broker_epoch = existing.epoch
        if image.metadata_version >= CORDONED_DIRECTORIES_LEVEL:
            # The cordons stay in force until the next heartbeat, which reports them again.
            record.cordoned_log_dirs = _cordons_of(existing)
        if knows_directories:
            # A directory that is missing now has failed, whether a heartbeat has said so or not.
            for directory in existing.directories:
                if directory not in request.log_dirs:
                    changes.settle()
                    changes.directory_failed(request.broker_id, directory)
    else:
        # An unregistered id may still be an eligible leader, but its last epoch is not known.
        is_clean = given.api_version < versions.BROKER_REGISTRATION_PREVIOUS_EPOCH or (
            existing is not None and request.previous_broker_epoch == existing.epoch
        )
        changes.forget_previous_incarnation(request.broker_id, is_clean=is_clean)
    changes.records.append(record)

    def on_append(last_offset: int) -> None:
        given.heartbeats.register(record.broker_id, record.broker_epoch)

    return Decision(
        BrokerRegistrationResponse(broker_epoch=record.broker_epoch),
        changes.records,
        on_append=on_append,
    )


def _cordons_of(broker: BrokerRegistration) -> list[Uuid] | None:
    known = broker.cordoned_directories
    return None if known is None else list(known)


def _record(
    request: BrokerRegistrationRequest, broker_epoch: int, *, knows_directories: bool
) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=bytes(request.incarnation_id),
        broker_epoch=broker_epoch,
        end_points=listener_rows(
            RegisterBrokerRecord.BrokerEndpoint, listener_endpoints(request.listeners)
        ),
        features=feature_rows(RegisterBrokerRecord.BrokerFeature, features_of(request.features)),
        rack=request.rack,
        fenced=True,
        log_dirs=[bytes(d) for d in request.log_dirs] if knows_directories else [],
    )


def unregister_broker(
    given: OperationContext, request: UnregisterBrokerRequest
) -> Decision[UnregisterBrokerResponse]:
    """Unregister a broker. A live broker then has to restart to register again.

    Raises:
        ApiError: BROKER_ID_NOT_REGISTERED.
    """
    if request.broker_id not in given.image.cluster.brokers:
        raise ApiError(
            ErrorCode.BROKER_ID_NOT_REGISTERED,
            f"Broker ID {request.broker_id} is not currently registered",
        )
    changes = BrokerChangeRecords(given.image, given.context.settings)
    changes.unregister(request.broker_id)
    return Decision(
        UnregisterBrokerResponse(error_message=None),
        changes.records,
        on_append=lambda _: given.heartbeats.remove(request.broker_id),
    )


def register_controller(
    given: OperationContext, request: ControllerRegistrationRequest
) -> Decision[ControllerRegistrationResponse]:
    """Register a controller's endpoints and features.

    Raises:
        ApiError: INVALID_REGISTRATION or UNSUPPORTED_VERSION.
    """
    _check_id("controller", request.controller_id)
    if given.image.metadata_version < CONTROLLER_REGISTRATION_LEVEL:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            "The current MetadataVersion is too old to support controller registrations.",
        )
    levels = finalized_levels(given.image, given.kraft_version)
    check_features(levels, request.features, f"controller {request.controller_id}")
    record = RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=bytes(request.incarnation_id),
        zk_migration_ready=request.zk_migration_ready,
        end_points=listener_rows(
            RegisterControllerRecord.ControllerEndpoint, listener_endpoints(request.listeners)
        ),
        features=feature_rows(
            RegisterControllerRecord.ControllerFeature, features_of(request.features)
        ),
    )
    return Decision(ControllerRegistrationResponse(error_message=None), [record])


def unregister_controller(
    given: OperationContext, request: UnregisterControllerRequest
) -> Decision[UnregisterControllerResponse]:
    """Remove the registration of a controller (KIP-1312); one that is alive registers again.

    A registration that stays after its node is gone bars levels that the node did not support.

    Raises:
        ApiError: INVALID_REQUEST, UNSUPPORTED_VERSION or CONTROLLER_ID_NOT_REGISTERED.
    """
    if request.controller_id == given.context.settings.node_id:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, "Controller cannot unregister itself while it is active."
        )
    if given.image.metadata_version < CONTROLLER_UNREGISTRATION_LEVEL:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            "The current MetadataVersion is too old to support controller unregistration.",
        )
    if request.controller_id not in given.image.cluster.controllers:
        raise ApiError(
            ErrorCode.CONTROLLER_ID_NOT_REGISTERED,
            f"Controller ID {request.controller_id} is not currently registered.",
        )
    record = UnregisterControllerRecord(controller_id=request.controller_id)
    return Decision(UnregisterControllerResponse(error_message=None), [record], is_atomic=True)


def finalized_levels(image: MetadataImage, kraft_version: int) -> Mapping[str, int]:
    """Return the finalized levels, 0 for "off"; kraft.version comes from the quorum."""
    return {**image.features.levels, **({KRAFT_VERSION: kraft_version} if kraft_version else {})}


def check_features(levels: Mapping[str, int], supported: Iterable[FeatureRow], who: str) -> None:
    """Refuse a node that cannot work at the cluster's feature levels.

    Raises:
        ApiError: INVALID_REGISTRATION without metadata.version, UNSUPPORTED_VERSION otherwise.
    """
    ranges = features_of(supported)
    if METADATA_VERSION not in ranges:
        raise ApiError(
            ErrorCode.INVALID_REGISTRATION, "Request features do not contain 'metadata.version'"
        )
    for name, level in levels.items():
        known = ranges.get(name, VersionRange(0, 0))
        if level not in known:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Unable to register because {who} does not support finalized version {level} of "
                f"{name}. It wants a version between {known.minimum} and {known.maximum}, "
                "inclusive.",
            )


def _check_id(role: str, node_id: int) -> None:
    """Refuse a negative id: in records and requests it means "no broker" or "not a broker"."""
    if node_id < 0:
        raise ApiError(
            ErrorCode.INVALID_REGISTRATION,
            f"The {role} id {node_id} is invalid: node.id must be 0 or more",
        )


def _check_cluster_id(given: str, expected: str) -> None:
    if given != expected:
        raise ApiError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"Expected cluster ID {expected}, but got cluster ID {given}",
        )


def _check_session(
    existing: BrokerRegistration | None,
    heartbeats: BrokerHeartbeatManager,
    request: BrokerRegistrationRequest,
    now_ms: int,
) -> None:
    if existing is None or existing.incarnation_id == request.incarnation_id:
        return
    if heartbeats.has_valid_session(existing.broker_id, existing.epoch, now_ms):
        raise ApiError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"Another broker is registered with broker id {existing.broker_id}. If the broker was "
            "recently restarted, this resolves itself once the old session expires.",
        )


def _check_directories(image: MetadataImage, broker_id: int, directories: list[Uuid]) -> None:
    def refuse(text: str) -> ApiError:
        return ApiError(ErrorCode.INVALID_REGISTRATION, text)

    if not directories:
        raise refuse("No directories specified in request")
    if any(is_reserved_directory_id(directory) for directory in directories):
        raise refuse("Reserved directory ID in request")
    if len(dict.fromkeys(directories)) != len(directories):
        raise refuse("Duplicate directory ID in request")
    for other in image.cluster.brokers.values():
        if other.broker_id == broker_id:
            continue
        for directory in directories:
            if directory in other.directories:
                raise refuse(
                    f"Broker {other.broker_id} is already registered with directory "
                    f"{uuid_text(directory)}"
                )


__all__ = [
    "check_features",
    "register_broker",
    "register_controller",
    "unregister_broker",
    "unregister_controller",
]
