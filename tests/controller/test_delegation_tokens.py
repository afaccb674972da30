"""Delegation tokens on the controller: who gets one, how long it lives, when it is gone."""

import hashlib
import hmac
from typing import Any

from controller_harness import Harness

from spindle.common.errors import ErrorCode
from spindle.controller.decision import TokenSettings
from spindle.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from spindle.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from spindle.protocol.messages.metadata_records import (
    DelegationTokenRecord,
    RemoveDelegationTokenRecord,
)
from spindle.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from spindle.security.secret import Secret

SECRET = "the secret of this cluster"
SETTINGS = TokenSettings(
    Secret(SECRET), max_lifetime_ms=10_000, expiry_time_ms=4_000, expiry_check_interval_ms=1_000
)
ALICE, BOB, CAROL = "User:alice", "User:bob", "User:carol"


def started(settings: TokenSettings | None = SETTINGS, **others: Any) -> Harness:
    node = Harness(delegation_tokens=settings, **others)
    node.quorum.become_leader(1, 1)
    return node


def creation(*renewers: str, owner: str = "", max_lifetime_ms: int = -1) -> Any:
    kind, _, name = owner.partition(":")
    return CreateDelegationTokenRequest(
        owner_principal_type=kind or None,
        owner_principal_name=name or None,
        renewers=[
            CreateDelegationTokenRequest.CreatableRenewers(principal_type=t, principal_name=n)
            for t, _, n in (renewer.partition(":") for renewer in renewers)
        ],
        max_lifetime_ms=max_lifetime_ms,
    )


def renewal(token: Any, period_ms: int = -1) -> RenewDelegationTokenRequest:
    return RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=period_ms)


def expiry(token: Any, period_ms: int = -1) -> ExpireDelegationTokenRequest:
    return ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=period_ms)


async def test_a_token_has_the_hmac_of_its_id_and_the_record_has_none() -> None:
    node = started()
    token = await node.request(creation(BOB), principal=ALICE)
    assert token.error_code == 0
    expected = hmac.new(SECRET.encode(), token.token_id.encode(), hashlib.sha512).digest()
    assert token.hmac == expected
    assert (token.principal_type, token.principal_name) == ("User", "alice")
    assert token.token_requester_principal_name == "alice"
    (record,) = node.records()[-1]
    assert isinstance(record, DelegationTokenRecord)
    assert (record.owner, record.requester, record.renewers) == (ALICE, ALICE, [BOB])
    assert record.token_id == token.token_id
    assert record.issue_timestamp == token.issue_timestamp_ms == node.now_ms
    assert record.expiration_timestamp == token.expiry_timestamp_ms == node.now_ms + 4_000
    assert record.max_timestamp == token.max_timestamp_ms == node.now_ms + 10_000


async def test_a_client_may_ask_for_a_shorter_life_only() -> None:
    node = started()
    short = await node.request(creation(max_lifetime_ms=1_500), principal=ALICE)
    assert short.max_timestamp_ms == short.expiry_timestamp_ms == node.now_ms + 1_500
    long = await node.request(creation(max_lifetime_ms=2**63 - 1), principal=ALICE)
    assert long.max_timestamp_ms == node.now_ms + 10_000


async def test_a_client_without_login_and_a_client_with_a_token_are_refused() -> None:
    node = started()
    token = await node.request(creation(), principal=ALICE)
    code = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    for request in (creation(), renewal(token), expiry(token)):
        anonymous = await node.request(request)
        with_token = await node.request(request, principal=ALICE, is_token=True)
        for answer in (anonymous, with_token):
            assert answer.error_code == code
            assert answer.expiry_timestamp_ms == -1
    assert len(node.driver.speculative_image.security.delegation_tokens) == 1


async def test_without_a_secret_tokens_are_disabled() -> None:
    node = started(None)
    created = await node.request(creation(), principal=ALICE)
    assert created.error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    assert (created.principal_name, created.token_id, created.hmac) == ("alice", "", b"")
    for request in (renewal(created), expiry(created)):
        answer = await node.request(request, principal=ALICE)
        assert answer.error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


async def test_an_old_metadata_version_has_no_tokens() -> None:
    node = started(metadata_version=13)
    answer = await node.request(creation(), principal=ALICE)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_owners_and_renewers_are_users() -> None:
    node = started()
    for request in (creation("Group:staff"), creation(owner="Group:staff")):
        answer = await node.request(request, principal=ALICE)
        assert answer.error_code == ErrorCode.INVALID_PRINCIPAL_TYPE
        assert answer.token_requester_principal_name == "alice"


async def test_a_principal_that_no_record_can_contain_is_refused() -> None:
    node = started()
    name = "z" * 32_767
    for request in (creation(f"User:{name}"), creation(owner=f"User:{name}")):
        answer = await node.request(request, principal=ALICE)
        assert answer.error_code == ErrorCode.INVALID_REQUEST
    answer = await node.request(creation(), principal=f"User:{name}")
    assert answer.error_code == ErrorCode.INVALID_REQUEST


async def test_owner_and_renewers_renew_up_to_the_longest_life() -> None:
    node = started()
    token = await node.request(creation(BOB), principal=ALICE)
    node.now_ms += 3_000
    by_bob = await node.request(renewal(token, 2_000), principal=BOB)
    assert by_bob.expiry_timestamp_ms == node.now_ms + 2_000
    node.now_ms += 1_500
    by_alice = await node.request(renewal(token, 60_000), principal=ALICE)
    assert by_alice.expiry_timestamp_ms == node.now_ms + 4_000
    node.now_ms += 3_900
    last = await node.request(renewal(token), principal=ALICE)
    assert last.expiry_timestamp_ms == token.max_timestamp_ms
    others = await node.request(renewal(token), principal=CAROL)
    assert others.error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH


async def test_a_token_that_is_over_or_unknown_is_not_renewed() -> None:
    node = started()
    token = await node.request(creation(), principal=ALICE)
    node.now_ms += 4_001
    for request in (renewal(token), expiry(token, 1_000)):
        answer = await node.request(request, principal=ALICE)
        assert answer.error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED
    token.hmac = bytes(64)
    for request in (renewal(token), expiry(token)):
        answer = await node.request(request, principal=ALICE)
        assert answer.error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND


async def test_a_negative_period_removes_a_token_at_once() -> None:
    node = started()
    token = await node.request(creation(), principal=ALICE)
    others = await node.request(expiry(token), principal=CAROL)
    assert others.error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    later = await node.request(expiry(token, 60_000), principal=ALICE)
    assert later.expiry_timestamp_ms == token.max_timestamp_ms
    gone = await node.request(expiry(token), principal=ALICE)
    assert (gone.error_code, gone.expiry_timestamp_ms) == (0, node.now_ms)
    (record,) = node.records()[-1]
    assert isinstance(record, RemoveDelegationTokenRecord)
    again = await node.request(expiry(token), principal=ALICE)
    assert again.error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND


async def test_the_active_controller_removes_tokens_that_are_over() -> None:
    node = started()
    await node.request(creation(), principal=ALICE)
    longer = await node.request(creation(), principal=ALICE)
    node.now_ms += 3_500
    await node.request(renewal(longer), principal=ALICE)
    node.pass_time(2_000)
    assert list(node.driver.speculative_image.security.delegation_tokens) == [longer.token_id]
    node.pass_time(4_000)
    assert not node.driver.speculative_image.security.delegation_tokens


def test_the_settings_hide_the_secret() -> None:
    assert SECRET not in repr(SETTINGS)
    assert SECRET not in repr(started().settings)
