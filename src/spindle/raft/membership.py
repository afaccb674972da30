"""Changes of the voter set, as the leader makes them: one voter at a time (KIP-853)."""

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.uuids import ZERO_UUID
from spindle.protocol.message import Message
from spindle.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from spindle.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from spindle.protocol.messages.remove_raft_voter import (
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)
from spindle.protocol.messages.update_raft_voter import (
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
)
from spindle.raft import kraft_records
from spindle.raft.appends import append_control
from spindle.raft.connections import InFlight
from spindle.raft.core import QuorumCore
from spindle.raft.peers import check_cluster, check_leads
from spindle.raft.ready import Destination, KRaftVersionUpgrade
from spindle.raft.responses import leader_destination
from spindle.raft.roles import Leader, VoterChange
from spindle.raft.voters import (
    RECONFIGURABLE_KRAFT_VERSION,
    KRaftVersionRange,
    ReplicaKey,
    Voter,
    VoterSet,
    voter_endpoints,
)

_KRAFT_VERSION_FEATURE = "kraft.version"

# ---------------------------------------------------------------- add and remove


def handle_add(core: QuorumCore, token: int, request: AddRaftVoterRequest, now_ms: int) -> None:
    """Begin to add a voter, or refuse it (AddRaftVoter, KIP-853)."""
    key = ReplicaKey(request.voter_id, request.voter_directory_id)
    voter = Voter(key, voter_endpoints(request.listeners))
    try:
        role = _check_change(core, request.cluster_id)
        if key.id < 0 or key.directory_id == ZERO_UUID:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{key} cannot be a voter.")
        if core.voters.get(key.id) is not None:
            raise ApiError(
                ErrorCode.DUPLICATE_VOTER,
                f"The voter id for {key} is already part of the set of voters "
                f"[{_key_list(core.voters)}].",
            )
        destination = _default_endpoint(core, voter)
    except ApiError as refusal:
        core.reply(token, _change_response(request, refusal.code, refusal.message))
        return
    deadline_ms = now_ms + max(0, request.timeout_ms)
    role.voter_change = VoterChange(token, request, deadline_ms, voter, stage="probing")
    _probe(core, destination, now_ms)


def handle_remove(
    core: QuorumCore, token: int, request: RemoveRaftVoterRequest, now_ms: int
) -> None:
    """Begin to remove a voter, or refuse it (RemoveRaftVoter, KIP-853)."""
    key = ReplicaKey(request.voter_id, request.voter_directory_id)
    try:
        role = _check_change(core, request.cluster_id)
        if key not in core.voters.keys or len(core.voters) == 1:
            raise ApiError(
                ErrorCode.VOTER_NOT_FOUND,
                f"Cannot remove voter {key} from the set of voters [{_key_list(core.voters)}]",
            )
    except ApiError as refusal:
        core.reply(token, _change_response(request, refusal.code, refusal.message))
        return
    deadline_ms = now_ms + core.settings.request_timeout_ms
    role.voter_change = VoterChange(token, request, deadline_ms)
    _append_voters(core, role.voter_change, core.voters.without(key), now_ms)


def handle_probe_response(
    core: QuorumCore, leader: Leader, sent: InFlight, response: ApiVersionsResponse, now_ms: int
) -> None:
    """Add the voter, which has sent its versions, if it meets the conditions."""
    change = leader.voter_change
    if change is None or change.voter is None or not change.is_probing(sent.destination.id):
        return
    try:
        versions = _fit_versions(core, leader, change.voter.key, response, now_ms)
    except ApiError as refusal:
        finish_voter_change(core, leader, refusal.code, refusal.message)
        return
    change.voter = change.voter._replace(versions=versions)
    _append_voters(core, change, core.voters.with_voter(change.voter), now_ms)
    if isinstance(change.request, AddRaftVoterRequest) and not change.request.ack_when_committed:
        change.is_answered = True
        core.reply(change.token, AddRaftVoterResponse(error_message=None))


def _fit_versions(
    core: QuorumCore, leader: Leader, key: ReplicaKey, response: ApiVersionsResponse, now_ms: int
) -> KRaftVersionRange:
    """Return the kraft.version levels of a new voter.

    Raises:
        ApiError: it does not support the current level, or its log lags behind.
    """
    if response.error_code:
        raise ApiError(
            ErrorCode.REQUEST_TIMED_OUT, "The new voter refused the ApiVersions request."
        )
    versions = KRaftVersionRange(0, 0)
    for feature in response.supported_features:
        if feature.name == _KRAFT_VERSION_FEATURE:
            versions = KRaftVersionRange(feature.min_version, feature.max_version)
    level = core.history.kraft_version
    if not versions.min_version <= level <= versions.max_version:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Aborted add voter operation: kraft.version is {level}, the voter supports "
            f"{versions.min_version} to {versions.max_version}.",
        )
    replica = leader.progress.find(key)
    if replica is None or now_ms - replica.last_caught_up_ms > core.settings.fetch_timeout_ms:
        raise ApiError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"Aborted add voter operation for {key} since it is lagging behind.",
        )
    return versions


def handle_probe_failed(core: QuorumCore, leader: Leader, sent: InFlight) -> None:
    """End the change: the voter to be added cannot be reached."""
    change = leader.voter_change
    if change is not None and change.is_probing(sent.destination.id):
        message = "The new voter did not answer on its endpoint."
        finish_voter_change(core, leader, ErrorCode.REQUEST_TIMED_OUT, message)


def poll_voter_change(core: QuorumCore, role: Leader, now_ms: int) -> None:
    """Answer a change that is committed or has timed out."""
    change = role.voter_change
    if change is None:
        return
    if change.stage == "committing" and core.leader_high_watermark > change.offset:
        finish_voter_change(core, role, ErrorCode.NONE, None)
    elif now_ms >= change.deadline_ms:
        finish_voter_change(
            core,
            role,
            ErrorCode.REQUEST_TIMED_OUT,
            "The change of the voters was not committed in time.",
        )
    else:
        core.wake_at(change.deadline_ms)


def finish_voter_change(
    core: QuorumCore, role: Leader, error: ErrorCode, message: str | None
) -> None:
    """End the pending change, if there is one, and answer its request."""
    change = role.voter_change
    if change is None:
        return
    role.voter_change = None
    if not change.is_answered:
        core.reply(change.token, _change_response(change.request, error, message))


def _check_change(core: QuorumCore, cluster_id: str | None) -> Leader:
    """Check what every change of the voters needs; return the leader's role.

    Raises:
        ApiError: the refusal.
    """
    check_cluster(core, cluster_id)
    role = check_leads(core, core.epoch)
    if role.voter_change is not None:
        raise ApiError(
            ErrorCode.REQUEST_TIMED_OUT,
            "Request timed out waiting for leader to handle previous voter change request.",
        )
    if core.leader_high_watermark < 0:
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "The high watermark is not known yet.")
    if core.history.kraft_version < RECONFIGURABLE_KRAFT_VERSION:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"Cluster doesn't support changing voters at kraft.version "
            f"{core.history.kraft_version}.",
        )
    offset = core.history.voters_offset
    if offset is not None and offset >= core.leader_high_watermark:
        raise ApiError(
            ErrorCode.REQUEST_TIMED_OUT, f"The voters of offset {offset} are not committed yet."
        )
    return role


def _append_voters(core: QuorumCore, change: VoterChange, voter_set: VoterSet, now_ms: int) -> None:
    change.stage = "committing"
    change.offset = append_control(core, [kraft_records.voters(voter_set)], now_ms)


def _probe(core: QuorumCore, destination: Destination, now_ms: int) -> None:
    message = ApiVersionsRequest(client_software_name="spindle", client_software_version="1")
    core.send(destination, message, now_ms)


def _default_endpoint(core: QuorumCore, voter: Voter) -> Destination:
    endpoint = voter.endpoint(core.local.controller_listener)
    if endpoint is None:
        listeners = [at.listener for at in voter.endpoints]
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"The endpoints {listeners} of {voter.key} lack the default controller listener "
            f"{core.local.controller_listener}.",
        )
    return Destination(voter.key.id, endpoint.host, endpoint.port)


def _change_response(
    request: AddRaftVoterRequest | RemoveRaftVoterRequest, error: ErrorCode, message: str | None
) -> Message:
    if isinstance(request, AddRaftVoterRequest):
        return AddRaftVoterResponse(error_code=error, error_message=message)
    return RemoveRaftVoterResponse(error_code=error, error_message=message)


def _key_list(voter_set: VoterSet) -> str:
    return ", ".join(str(key) for key in voter_set.keys)


# ---------------------------------------------------------------- update


def handle_update(
    core: QuorumCore, token: int, request: UpdateRaftVoterRequest, now_ms: int
) -> None:
    """Store the endpoints and versions that a voter reports; answer before the commit."""
    error = ErrorCode.NONE
    try:
        _update(core, request, now_ms)
    except ApiError as refusal:
        error = refusal.code
    leader = leader_destination(core)
    core.reply(
        token,
        UpdateRaftVoterResponse(
            error_code=error,
            current_leader=UpdateRaftVoterResponse.CurrentLeader(
                leader_id=core.leader_id,
                leader_epoch=core.epoch,
                host=leader.host if leader else "",
                port=leader.port if leader else 0,
            ),
        ),
    )


def _update(core: QuorumCore, request: UpdateRaftVoterRequest, now_ms: int) -> None:
    check_cluster(core, request.cluster_id)
    role = check_leads(core, request.current_leader_epoch)
    feature = request.k_raft_version_feature
    voter = Voter(
        ReplicaKey(request.voter_id, request.voter_directory_id),
        voter_endpoints(request.listeners),
        KRaftVersionRange(feature.min_supported_version, feature.max_supported_version),
    )
    level = core.history.kraft_version
    if not voter.versions.min_version <= level <= voter.versions.max_version:
        raise ApiError(ErrorCode.INVALID_REQUEST)
    _default_endpoint(core, voter)
    if level < RECONFIGURABLE_KRAFT_VERSION:
        if core.voters.get(voter.key.id) is None:
            raise ApiError(ErrorCode.VOTER_NOT_FOUND)
        role.reported_voters[voter.key.id] = voter
        return
    _check_change(core, None)
    if voter.key not in core.voters.keys:
        raise ApiError(ErrorCode.VOTER_NOT_FOUND)
    if core.voters.get(voter.key.id) != voter:
        append_control(core, [kraft_records.voters(core.voters.with_voter(voter))], now_ms)


# ---------------------------------------------------------------- kraft.version


def upgrade_kraft_version(core: QuorumCore, event: KRaftVersionUpgrade, now_ms: int) -> None:
    """Raise kraft.version from 0 to 1: the voters' directory ids go into the log (KIP-853).

    Raises:
        ApiError: not the leader, a downgrade, or a voter's directory id is not known yet.
    """
    leader = core.leader
    if leader is None or leader.epoch != event.epoch:
        raise ApiError(ErrorCode.NOT_CONTROLLER, f"node {core.local.key.id} does not lead")
    current = core.history.kraft_version
    if event.version == current:
        return
    if event.version < current:
        raise ApiError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"kraft.version cannot go from {current} to {event.version}",
        )
    if core.leader_high_watermark < 0:
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "the high watermark is not known yet")
    voter_set = _voters_with_directories(core, leader)
    if not event.is_validate_only:
        records = [kraft_records.kraft_version(event.version), kraft_records.voters(voter_set)]
        append_control(core, records, now_ms)


def _voters_with_directories(core: QuorumCore, role: Leader) -> VoterSet:
    known = dict(role.reported_voters)
    known[core.local.key.id] = core.local.voter
    missing = [voter_id for voter_id in core.voters.ids if voter_id not in known]
    if missing:
        raise ApiError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"the directory ids of voters {missing} are not known: they have not reported them",
        )
    return VoterSet(known[voter_id] for voter_id in core.voters.ids)
