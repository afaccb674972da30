"""Delegation tokens on a broker (KIP-48): who may send such requests, and DescribeDelegationToken.

The controller creates, renews and expires tokens. The broker first checks how the client has logged
in, because only it has the connection.
"""

from spindle.authorization.operations import Operation
from spindle.common.errors import ErrorCode
from spindle.controller.decision import Requester
from spindle.controller.delegation_tokens import (
    TokenRequest,
    has_other_than_users,
    owner_of,
    refusal,
    refused_login,
)
from spindle.metadata.security import DelegationToken
from spindle.protocol.message import Message
from spindle.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from spindle.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from spindle.security.delegation_tokens import token_hmac
from spindle.security.secret import Secret
from spindle.serving.context import RequestContext
from spindle.serving.permissions import Guarded, may_describe_token, may_use_tokens_of
from spindle.serving.ports import DescribedNode

_Described = DescribeDelegationTokenResponse.DescribedDelegationToken


def refused_token_request(
    node: Guarded, context: RequestContext, request: TokenRequest
) -> Message | None:
    """Return the response to a request that must not reach the controller; None if it may."""
    requester = _requester(context)
    refused = refused_login(request, requester)
    if refused is not None:
        return refused
    if not isinstance(request, CreateDelegationTokenRequest):
        return None
    owner = owner_of(request, requester)
    if owner != requester.principal and not may_use_tokens_of(
        node, context, Operation.CREATE_TOKENS, owner
    ):
        return refusal(request, requester, ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
    if has_other_than_users(request.renewers):
        return refusal(request, requester, ErrorCode.INVALID_PRINCIPAL_TYPE)
    return None


def describe_delegation_token(
    node: DescribedNode, context: RequestContext, request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    """Describe tokens with HMACs: those the client owns, may renew or has the right to describe."""
    if not _requester(context).may_use_tokens:
        return DescribeDelegationTokenResponse(
            error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        )
    secret = node.config.delegation_token_secret
    if secret is None:
        return DescribeDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    owners = request.owners
    asked = None if owners is None else [f"{o.principal_type}:{o.principal_name}" for o in owners]
    return DescribeDelegationTokenResponse(
        tokens=[
            _described(secret, token_id, token)
            for token_id, token in node.metadata.image.security.delegation_tokens.items()
            if (asked is None or any(map(token.is_of, asked)))
            and (
                token.is_of(context.principal)
                or may_describe_token(
                    node, context, token_id, token.owner, is_logged=asked is not None
                )
            )
        ]
    )


def _requester(context: RequestContext) -> Requester:
    return Requester(context.principal, context.is_token_authenticated)


def _described(secret: Secret, token_id: str, token: DelegationToken) -> _Described:
    owner_type, _, owner_name = token.owner.partition(":")
    requester_type, _, requester_name = token.requester.partition(":")
    return _Described(
        principal_type=owner_type,
        principal_name=owner_name,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester_name,
        issue_timestamp=token.issue_timestamp_ms,
        expiry_timestamp=token.expiration_timestamp_ms,
        max_timestamp=token.max_timestamp_ms,
        token_id=token_id,
        hmac=token_hmac(secret, token_id),
        renewers=[
            _Described.DescribedDelegationTokenRenewer(principal_type=kind, principal_name=name)
            for kind, _, name in (renewer.partition(":") for renewer in token.renewers)
        ],
    )
