"""BrokerHeartbeat, and the fencing of brokers that send no heartbeats."""

from typing import Final

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.uuids import Uuid
from spindle.controller.broker_changes import BrokerChangeRecords, has_leaderships
from spindle.controller.broker_sessions import BrokerControlState, BrokerHeartbeatManager
from spindle.controller.decision import (
    MAX_RECORDS_PER_OPERATION,
    ControllerContext,
    Decision,
    OperationContext,
)
from spindle.metadata.cluster import BrokerRegistration
from spindle.metadata.features import CORDONED_DIRECTORIES_LEVEL, DIRECTORY_ASSIGNMENT_LEVEL
from spindle.metadata.image import MetadataImage
from spindle.protocol.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from spindle.protocol.messages.metadata_records import BrokerRegistrationChangeRecord

MAX_PARTITIONS_PER_FENCING: Final = 1_000
"""Maximum number of partitions that are moved away in one step when a broker is fenced: some tens
of milliseconds of work."""
MAX_MOVES_PER_HEARTBEAT: Final = MAX_RECORDS_PER_OPERATION
"""Maximum number of partitions that one heartbeat of a starting or stopping broker moves."""


def check_broker_epoch(image: MetadataImage, broker_id: int, epoch: int) -> BrokerRegistration:
    """Return the registration, if the epoch is the current one.

    Raises:
        ApiError: STALE_BROKER_EPOCH; also for a broker that is not registered at all.
    """
    broker = image.cluster.brokers.get(broker_id)
    if broker is None:
        raise ApiError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"No broker registration found for broker id {broker_id}",
        )
    if broker.epoch != epoch:
        raise ApiError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"Expected broker epoch {broker.epoch}, but got broker epoch {epoch}",
        )
    return broker


def process_heartbeat(
    given: OperationContext, request: BrokerHeartbeatRequest
) -> Decision[BrokerHeartbeatResponse]:
    """Move the broker to its next state, and record the directories in its heartbeat.

    Raises:
        ApiError: STALE_BROKER_EPOCH.
    """
    image, heartbeats = given.image, given.heartbeats
    broker_id = request.broker_id
    broker = check_broker_epoch(image, broker_id, request.broker_epoch)
    current, following = heartbeats.next_state(
        image, broker, request, lambda: has_leaderships(image, broker_id)
    )
    changes = BrokerChangeRecords(image, given.context.settings)
    has_moved = leaves_elections = False
    if following is not current:
        if following is BrokerControlState.UNFENCED:
            leaves_elections = not changes.unfence(broker_id, MAX_MOVES_PER_HEARTBEAT)
        elif following is BrokerControlState.CONTROLLED_SHUTDOWN:
            # Partitions beyond the limit are moved at the next heartbeats.
            has_moved = changes.begin_controlled_shutdown(broker_id, MAX_MOVES_PER_HEARTBEAT)
        elif not broker.is_fenced:
            changes.fence(broker_id)
    if image.metadata_version >= DIRECTORY_ASSIGNMENT_LEVEL:
        _directories_offline(broker, request.offline_log_dirs, changes)
    if image.metadata_version >= CORDONED_DIRECTORIES_LEVEL:
        _directories_cordoned(broker, request.cordoned_log_dirs, changes)

    def on_append(last_offset: int) -> None:
        heartbeats.report_offset(broker_id, request.current_metadata_offset)
        if has_moved:
            heartbeats.begin_shutdown(broker_id, last_offset)
        if following is BrokerControlState.SHUTDOWN_NOW:
            # Its next incarnation need not wait for the end of this session.
            heartbeats.end_session(broker_id)

    return Decision(
        BrokerHeartbeatResponse(
            is_caught_up=request.current_metadata_offset >= broker.register_offset,
            is_fenced=following.is_fenced,
            should_shut_down=following is BrokerControlState.SHUTDOWN_NOW,
        ),
        changes.records,
        on_append=on_append,
        leaves_elections=leaves_elections,
    )


def fence_stale_broker(
    image: MetadataImage,
    heartbeats: BrokerHeartbeatManager,
    now_ms: int,
    context: ControllerContext,
) -> Decision[bool]:
    """Fence the broker whose session expired first; respond False if none expired.

    It handles one broker at a time, because the elections for its partitions must see the brokers
    that were fenced before. A broker with very many partitions is fenced over several calls.
    Between the calls the node does its other work: otherwise the quorum would elect another leader,
    which would start again. A broker that sends a heartbeat meanwhile is not
    fenced.
    """
    broker_id = heartbeats.next_expired(now_ms)
    if broker_id is None:
        return Decision(False)
    changes = BrokerChangeRecords(image, context.settings)
    is_fenced = broker_id not in image.cluster.brokers or changes.fence(
        broker_id, MAX_PARTITIONS_PER_FENCING
    )
    settle = heartbeats.end_session if is_fenced else heartbeats.expire
    return Decision(True, changes.records, on_append=lambda _: settle(broker_id))


def _directories_offline(
    broker: BrokerRegistration, offline: list[Uuid], changes: BrokerChangeRecords
) -> None:
    """Remove failed directories from the registration; a broker reports them until it restarts."""
    failed = [directory for directory in broker.directories if directory in offline]
    if not failed:
        return
    for directory in failed:
        changes.settle()
        changes.directory_failed(broker.broker_id, directory)
    remaining = [directory for directory in broker.directories if directory not in failed]
    if not remaining:
        # The record cannot express this: an empty list means "no change". The broker stops itself.
        return
    changes.records.append(
        BrokerRegistrationChangeRecord(
            broker_id=broker.broker_id, broker_epoch=broker.epoch, log_dirs=remaining
        )
    )


def _directories_cordoned(
    broker: BrokerRegistration, cordoned: list[Uuid] | None, changes: BrokerChangeRecords
) -> None:
    """Record the cordoned directories; None if the broker's version does not report them."""
    if cordoned is None:
        return
    known = broker.cordoned_directories
    if known is None or sorted(known) != sorted(cordoned):
        changes.records.append(
            BrokerRegistrationChangeRecord(
                broker_id=broker.broker_id,
                broker_epoch=broker.epoch,
                cordoned_log_dirs=list(cordoned),
            )
        )
