"""Delegation tokens on a broker: who may ask for them, who sees them, and who logs in with them."""

import logging
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from rights import Rights

from spindle.authorization.authorizer import Authorizer, NoAuthorizer
from spindle.authorization.denials import Denials
from spindle.authorization.operations import Operation
from spindle.authorization.standard import StandardAuthorizer
from spindle.common.errors import ErrorCode
from spindle.metadata.image import EMPTY_IMAGE
from spindle.metadata.security import DelegationToken
from spindle.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from spindle.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from spindle.runtime.network.token_logins import TokenLogins
from spindle.security.delegation_tokens import token_hmac, token_password
from spindle.security.scram import ScramMechanism, salted_password, stored_key
from spindle.security.secret import Secret
from spindle.serving.context import RequestContext
from spindle.serving.handlers.delegation_tokens import (
    describe_delegation_token,
    refused_token_request,
)

SECRET = Secret("the secret")
ALICE, BOB, CAROL = "User:alice", "User:bob", "User:carol"
TOKENS = {
    "a": DelegationToken(ALICE, ALICE, (BOB,), 1, 100, 50),
    "b": DelegationToken(BOB, ALICE, (), 1, 100, 50),
}
IMAGE = replace(EMPTY_IMAGE, security=replace(EMPTY_IMAGE.security, delegation_tokens=TOKENS))


def node(authorizer: Authorizer, secret: Secret | None = SECRET) -> Any:
    return SimpleNamespace(
        config=SimpleNamespace(delegation_token_secret=secret),
        metadata=SimpleNamespace(image=IMAGE),
        authorizer=authorizer,
    )


def client(principal: str, *, is_token: bool = False) -> RequestContext:
    return RequestContext(
        41, 3, 1, "app", "127.0.0.1", "LOGIN", principal, is_token_authenticated=is_token
    )


def seen(at: Any, principal: str, *owners: str, by_name: bool = False) -> list[str]:
    """Return the ids of the tokens that a client sees; those of owners if it names them."""
    owner = DescribeDelegationTokenRequest.DescribeDelegationTokenOwner
    named = [
        owner(principal_type=kind, principal_name=name)
        for kind, _, name in (owner.partition(":") for owner in owners)
    ]
    request = DescribeDelegationTokenRequest(owners=named if owners or by_name else None)
    answer = describe_delegation_token(at, client(principal), request)
    assert answer.error_code == 0
    assert all(t.hmac == token_hmac(SECRET, t.token_id) for t in answer.tokens)
    return [token.token_id for token in answer.tokens]


def test_owners_and_renewers_see_their_tokens() -> None:
    at = node(Rights())
    assert seen(at, ALICE) == ["a"]
    assert seen(at, BOB) == ["a", "b"]
    assert seen(at, BOB, BOB) == ["a", "b"]
    assert seen(at, BOB, ALICE) == ["a"]
    assert seen(at, CAROL) == []
    assert seen(at, BOB, by_name=True) == []


def test_a_hidden_token_is_in_the_log_only_if_its_owner_was_asked_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "spindle.authorizer")
    authorizer = StandardAuthorizer(frozenset(), Denials(lambda: 0), allow_everyone=False)
    authorizer.complete_load()
    assert seen(node(authorizer), CAROL) == []
    assert caplog.messages == []
    assert seen(node(authorizer), CAROL, ALICE) == []
    (line,) = caplog.messages
    assert "DESCRIBE_TOKENS" in line


def test_a_right_on_the_token_or_on_its_owner_shows_it_to_others() -> None:
    assert seen(node(Rights((Operation.DESCRIBE, "a"))), CAROL) == ["a"]
    assert seen(node(Rights((Operation.DESCRIBE_TOKENS, BOB))), CAROL) == ["b"]
    assert seen(node(NoAuthorizer()), CAROL) == ["a", "b"]


def test_tokens_are_not_described_without_login_or_without_a_secret() -> None:
    request = DescribeDelegationTokenRequest(owners=None)
    for context in (client("User:ANONYMOUS"), client(ALICE, is_token=True)):
        answer = describe_delegation_token(node(NoAuthorizer()), context, request)
        assert answer.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        assert answer.tokens == []
    disabled = describe_delegation_token(node(NoAuthorizer(), None), client(ALICE), request)
    assert disabled.error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


def test_a_token_for_another_owner_needs_a_right() -> None:
    request = CreateDelegationTokenRequest(owner_principal_type="User", owner_principal_name="bob")
    refused: Any = refused_token_request(node(Rights()), client(ALICE), request)
    assert refused.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    assert (refused.principal_name, refused.token_requester_principal_name) == ("bob", "alice")
    allowed = node(Rights((Operation.CREATE_TOKENS, BOB)))
    assert refused_token_request(allowed, client(ALICE), request) is None
    assert refused_token_request(node(Rights()), client(BOB), request) is None


def test_a_token_logs_in_until_its_end() -> None:
    now_ms = [50]
    mechanism = ScramMechanism.SCRAM_SHA_256
    logins = TokenLogins(SECRET, mechanism, lambda: IMAGE, lambda: now_ms[0])
    token_credential = logins.credential("a")
    assert token_credential is not None
    assert (token_credential.owner, token_credential.expires_at_ms) == (ALICE, 50)
    credential = token_credential.credential
    password = token_password(SECRET, "a")
    salted = salted_password(mechanism, password, credential.salt, credential.iterations)
    assert stored_key(mechanism, salted) == credential.stored_key
    assert logins.credential("a") == token_credential, "computed once"
    assert logins.credential("none") is None
    now_ms[0] = 51
    assert logins.credential("a") is None
