"""Create, renew and expire delegation tokens (KIP-48, KIP-373, KIP-900).

The response to a refused CreateDelegationToken names owner and requester, like an accepted one.
The caller checks login and ACLs before these decisions; `refusal` builds the response if they fail.
"""

from collections.abc import Iterable
from typing import Final, TypeAlias

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.uuids import uuid_text
from spindle.controller.decision import ControllerContext, Decision, Requester, TokenSettings
from spindle.metadata.features import DELEGATION_TOKEN_LEVEL
from spindle.metadata.image import MetadataImage
from spindle.metadata.security import DelegationToken
from spindle.protocol.message import Message
from spindle.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from spindle.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from spindle.protocol.messages.metadata_records import (
    DelegationTokenRecord,
    RemoveDelegationTokenRecord,
)
from spindle.protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from spindle.protocol.sentinels import NO_TIMESTAMP
from spindle.security.delegation_tokens import find_token, token_hmac

USER: Final = "User"
_MAX_TIME_MS: Final = 2**63 - 1
_MAX_PRINCIPAL: Final = 32_767


_Renewer = CreateDelegationTokenRequest.CreatableRenewers
TokenRequest: TypeAlias = (
    CreateDelegationTokenRequest | RenewDelegationTokenRequest | ExpireDelegationTokenRequest
)


def owner_of(request: CreateDelegationTokenRequest, requester: Requester) -> str:
    """Return the principal that a token would belong to: the requester, if no other is named."""
    if not request.owner_principal_name:
        return requester.principal
    return f"{request.owner_principal_type}:{request.owner_principal_name}"


def has_other_than_users(renewers: Iterable[_Renewer]) -> bool:
    """Return whether any renewer is not a user. Only users can renew tokens."""
    return any(renewer.principal_type != USER for renewer in renewers)


def refusal(request: TokenRequest, requester: Requester, code: ErrorCode) -> Message:
    """Return the response to a client whose login or ACLs do not allow the request."""
    if isinstance(request, CreateDelegationTokenRequest):
        return _creation(request, requester, code, NO_TIMESTAMP)
    if isinstance(request, RenewDelegationTokenRequest):
        return RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=NO_TIMESTAMP)
    return ExpireDelegationTokenResponse(error_code=code, expiry_timestamp_ms=NO_TIMESTAMP)


def refused_login(request: TokenRequest, requester: Requester) -> Message | None:
    """Return the response to a client whose login is insufficient; None if it suffices."""
    if requester.may_use_tokens:
        return None
    return refusal(request, requester, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


def create_delegation_token(
    image: MetadataImage,
    request: CreateDelegationTokenRequest,
    requester: Requester,
    context: ControllerContext,
    now_ms: int,
) -> Decision[CreateDelegationTokenResponse]:
    """Create a token.

    Args:
        now_ms: the wall clock.
    """
    try:
        settings = _settings(image, context)
        owner = owner_of(request, requester)
        if not owner.startswith(f"{USER}:") or has_other_than_users(request.renewers):
            raise ApiError(ErrorCode.INVALID_PRINCIPAL_TYPE, "tokens are for users only")
        renewers = tuple(f"{USER}:{renewer.principal_name}" for renewer in request.renewers)
        _check_lengths((owner, requester.principal, *renewers))
    except ApiError as error:
        return Decision(_creation(request, requester, error.code))
    lifetime_ms = settings.max_lifetime_ms
    if request.max_lifetime_ms > 0:
        lifetime_ms = min(lifetime_ms, request.max_lifetime_ms)
    max_ms = _later(now_ms, lifetime_ms)
    expiry_ms = min(max_ms, _later(now_ms, settings.expiry_time_ms))
    token_id = uuid_text(context.new_uuid())
    response = _creation(request, requester)
    response.issue_timestamp_ms = now_ms
    response.expiry_timestamp_ms = expiry_ms
    response.max_timestamp_ms = max_ms
    response.token_id = token_id
    response.hmac = token_hmac(settings.secret, token_id)
    token = DelegationToken(owner, requester.principal, renewers, now_ms, max_ms, expiry_ms)
    return Decision(response, [_record(token_id, token)], is_atomic=True)


def renew_delegation_token(
    image: MetadataImage,
    request: RenewDelegationTokenRequest,
    requester: Requester,
    context: ControllerContext,
    now_ms: int,
) -> Decision[RenewDelegationTokenResponse]:
    """Change a token's expiry time, at most to its maximum lifetime.

    Raises:
        ApiError: DELEGATION_TOKEN_* for a token that is unknown, expired, or owned by others.
    """
    settings = _settings(image, context)
    token_id, token = _token(image, settings, request.hmac)
    _check_not_expired(token, now_ms)
    _check_renewer(token, requester)
    period_ms = settings.expiry_time_ms
    if request.renew_period_ms > 0:
        period_ms = min(period_ms, request.renew_period_ms)
    expiry_ms = min(token.max_timestamp_ms, _later(now_ms, period_ms))
    record = _record(token_id, token._replace(expiration_timestamp_ms=expiry_ms))
    response = RenewDelegationTokenResponse(expiry_timestamp_ms=expiry_ms)
    return Decision(response, [record], is_atomic=True)


def expire_delegation_token(
    image: MetadataImage,
    request: ExpireDelegationTokenRequest,
    requester: Requester,
    context: ControllerContext,
    now_ms: int,
) -> Decision[ExpireDelegationTokenResponse]:
    """Change when a token expires; a negative period removes the token at once.

    Raises:
        ApiError: DELEGATION_TOKEN_* for a token that is unknown, expired, or owned by others.
    """
    settings = _settings(image, context)
    token_id, token = _token(image, settings, request.hmac)
    _check_renewer(token, requester)
    if request.expiry_time_period_ms < 0:
        gone = RemoveDelegationTokenRecord(token_id=token_id)
        return Decision(
            ExpireDelegationTokenResponse(expiry_timestamp_ms=now_ms), [gone], is_atomic=True
        )
    _check_not_expired(token, now_ms)
    expiry_ms = min(token.max_timestamp_ms, _later(now_ms, request.expiry_time_period_ms))
    record = _record(token_id, token._replace(expiration_timestamp_ms=expiry_ms))
    response = ExpireDelegationTokenResponse(expiry_timestamp_ms=expiry_ms)
    return Decision(response, [record], is_atomic=True)


def remove_expired_tokens(image: MetadataImage, now_ms: int) -> Decision[int]:
    """Remove expired tokens; the decision's response is their number."""
    records: list[Message] = [
        RemoveDelegationTokenRecord(token_id=token_id)
        for token_id, token in image.security.delegation_tokens.items()
        if token.is_expired(now_ms)
    ]
    return Decision(len(records), records)


def _settings(image: MetadataImage, context: ControllerContext) -> TokenSettings:
    settings = context.settings.delegation_tokens
    if settings is None:
        raise ApiError(
            ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, "delegation.token.secret.key is not set"
        )
    if image.metadata_version < DELEGATION_TOKEN_LEVEL:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            "The current metadata.version does not support delegation tokens.",
        )
    return settings


def _creation(
    request: CreateDelegationTokenRequest,
    requester: Requester,
    code: ErrorCode = ErrorCode.NONE,
    time_ms: int = 0,
) -> CreateDelegationTokenResponse:
    """Return a response that names owner and requester, with `time_ms` for all times."""
    owner_type, _, owner_name = owner_of(request, requester).partition(":")
    requester_type, _, requester_name = requester.principal.partition(":")
    return CreateDelegationTokenResponse(
        error_code=code,
        principal_type=owner_type,
        principal_name=owner_name,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester_name,
        issue_timestamp_ms=time_ms,
        expiry_timestamp_ms=time_ms,
        max_timestamp_ms=time_ms,
    )


def _token(
    image: MetadataImage, settings: TokenSettings, wanted: bytes
) -> tuple[str, DelegationToken]:
    tokens = image.security.delegation_tokens
    token_id = find_token(settings.secret, tokens, bytes(wanted))
    if token_id is None:
        raise ApiError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, "no token has this HMAC")
    return token_id, tokens[token_id]


def _check_not_expired(token: DelegationToken, now_ms: int) -> None:
    if token.is_expired(now_ms):
        raise ApiError(ErrorCode.DELEGATION_TOKEN_EXPIRED, "the token is over")


def _check_lengths(principals: Iterable[str]) -> None:
    """Check that these principals fit into a record; a name may have any length."""
    if any(len(principal.encode()) > _MAX_PRINCIPAL for principal in principals):
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"a principal is longer than {_MAX_PRINCIPAL} bytes"
        )


def _check_renewer(token: DelegationToken, requester: Requester) -> None:
    if not token.is_of(requester.principal):
        raise ApiError(
            ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, "the token is that of another principal"
        )


def _later(now_ms: int, duration_ms: int) -> int:
    return min(_MAX_TIME_MS, now_ms + duration_ms)


def _record(token_id: str, token: DelegationToken) -> DelegationTokenRecord:
    return DelegationTokenRecord(
        owner=token.owner,
        requester=token.requester,
        renewers=list(token.renewers),
        issue_timestamp=token.issue_timestamp_ms,
        max_timestamp=token.max_timestamp_ms,
        expiration_timestamp=token.expiration_timestamp_ms,
        token_id=token_id,
    )
