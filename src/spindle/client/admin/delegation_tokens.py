"""Delegation tokens (KIP-48). Principals are texts of the form `User:alice`."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from spindle.client.admin.refusals import raise_refusal
from spindle.client.blocking.client import WireClient
from spindle.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from spindle.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from spindle.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from spindle.protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)


@dataclass(frozen=True, slots=True)
class KnownToken:
    """A token. Its HMAC, in base64, is the password of a login. Times in ms since the epoch."""

    token_id: str
    hmac: bytes = field(repr=False)
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp_ms: int
    expiry_timestamp_ms: int
    max_timestamp_ms: int


def create_token(
    client: WireClient, renewers: Sequence[str], owner: str | None, max_lifetime_ms: int
) -> KnownToken:
    """Create a token.

    Args:
        owner: None for the principal of this client.
        max_lifetime_ms: 0 or less for the maximum of the cluster.

    Raises:
        ApiError: the cluster refused.
        ClientError: no broker could be asked.
    """
    owner_type, _, owner_name = (owner or "").partition(":")
    request = CreateDelegationTokenRequest(
        owner_principal_type=owner_type if owner else None,
        owner_principal_name=owner_name if owner else None,
        renewers=[
            CreateDelegationTokenRequest.CreatableRenewers(principal_type=kind, principal_name=name)
            for kind, _, name in (renewer.partition(":") for renewer in renewers)
        ],
        max_lifetime_ms=max_lifetime_ms,
    )
    answer = client.ask(request, CreateDelegationTokenResponse)
    raise_refusal(answer.error_code)
    return KnownToken(
        answer.token_id,
        bytes(answer.hmac),
        f"{answer.principal_type}:{answer.principal_name}",
        f"{answer.token_requester_principal_type}:{answer.token_requester_principal_name}",
        tuple(renewers),
        answer.issue_timestamp_ms,
        answer.expiry_timestamp_ms,
        answer.max_timestamp_ms,
    )


def renew_token(client: WireClient, hmac: bytes, period_ms: int) -> int:
    """Renew a token; return its new end in ms since the epoch.

    Args:
        period_ms: 0 or less for the default time of the cluster.

    Raises:
        ApiError: the cluster refused.
        ClientError: no broker could be asked.
    """
    request = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)
    answer = client.ask(request, RenewDelegationTokenResponse)
    raise_refusal(answer.error_code)
    return answer.expiry_timestamp_ms


def expire_token(client: WireClient, hmac: bytes, period_ms: int) -> int:
    """Set the end of a token; return it in ms since the epoch.

    Args:
        period_ms: time from now; negative for an end at once.

    Raises:
        ApiError: the cluster refused.
        ClientError: no broker could be asked.
    """
    request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)
    answer = client.ask(request, ExpireDelegationTokenResponse)
    raise_refusal(answer.error_code)
    return answer.expiry_timestamp_ms


def describe_tokens(client: WireClient, owners: Sequence[str]) -> list[KnownToken]:
    """Return the tokens of owners or renewers, or all that this client may see.

    Args:
        owners: empty for all.

    Raises:
        ApiError: the cluster refused.
        ClientError: no broker could be asked.
    """
    owner = DescribeDelegationTokenRequest.DescribeDelegationTokenOwner
    request = DescribeDelegationTokenRequest(
        owners=[
            owner(principal_type=kind, principal_name=name)
            for kind, _, name in (owner.partition(":") for owner in owners)
        ]
        or None
    )
    answer = client.retrying(lambda: client.ask(request, DescribeDelegationTokenResponse))
    raise_refusal(answer.error_code)
    return [
        KnownToken(
            token.token_id,
            bytes(token.hmac),
            f"{token.principal_type}:{token.principal_name}",
            f"{token.token_requester_principal_type}:{token.token_requester_principal_name}",
            tuple(
                f"{renewer.principal_type}:{renewer.principal_name}" for renewer in token.renewers
            ),
            token.issue_timestamp,
            token.expiry_timestamp,
            token.max_timestamp,
        )
        for token in answer.tokens
    ]
