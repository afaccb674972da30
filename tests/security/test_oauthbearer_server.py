"""The exchange of OAUTHBEARER on the server, and tokens without signatures."""

import pytest
from bearer_tokens import CLAIMS, NOW_S, signed, unsecured

from spindle.common.errors import ConfigError
from spindle.security.server.mechanism import LoggedIn, LoginRefused
from spindle.security.server.oauthbearer import (
    BearerToken,
    TokenRefused,
    ValidateToken,
    oauthbearer_exchange,
)
from spindle.security.server.unsecured_tokens import (
    UnsecuredRules,
    unsecured_rules,
    unsecured_token,
)

NOW_MS = NOW_S * 1000


def accept(token: str) -> BearerToken:
    assert token == "abc.def-_~+/="
    return BearerToken("alice", 77)


def refuse(token: str) -> BearerToken:
    raise TokenRefused("the token is expired")


def answers(validate: ValidateToken, *messages: bytes) -> list[bytes] | LoggedIn:
    """Return the messages of the server, or the login that ends the exchange."""
    exchange = oauthbearer_exchange(validate)
    next(exchange)
    answers = []
    for message in messages:
        try:
            answers.append(exchange.send(message))
        except StopIteration as end:
            logged_in: LoggedIn = end.value
            return logged_in
    return answers


def first(middle: str = "auth=Bearer abc.def-_~+/=\x01", header: str = "n,,") -> bytes:
    return f"{header}\x01{middle}\x01".encode()


def test_a_valid_token_logs_its_principal_in() -> None:
    assert answers(accept, first()) == LoggedIn("alice", expires_at_ms=77)
    assert answers(accept, first(header="n,a=alice,")) == LoggedIn("alice", expires_at_ms=77)
    lower = "auth=bearer   abc.def-_~+/=\x01"
    assert answers(accept, first(lower)) == LoggedIn("alice", expires_at_ms=77)


def test_extensions_may_stand_beside_the_token() -> None:
    middle = "traceId=123 x\x01auth=Bearer abc.def-_~+/=\x01logicalCluster=lkc-1\x01"
    assert answers(accept, first(middle)) == LoggedIn("alice", expires_at_ms=77)


def test_a_refused_token_is_answered_with_json_and_then_ends_the_login() -> None:
    error = b'{"status":"invalid_token"}'
    assert answers(refuse, first()) == [error]
    with pytest.raises(LoginRefused, match="the token is expired") as caught:
        answers(refuse, first(), b"\x01")
    assert caught.value.client_text == error.decode()


def test_a_second_token_in_the_same_exchange_is_not_looked_at() -> None:
    seen = []

    def once(token: str) -> BearerToken:
        seen.append(token)
        raise TokenRefused("no")

    with pytest.raises(LoginRefused):
        answers(once, first(), first())
    assert len(seen) == 1


@pytest.mark.parametrize("name", ["\ud800", "x" * 32_768])
def test_a_principal_that_no_request_between_nodes_can_have_is_refused(name: str) -> None:
    with pytest.raises(LoginRefused, match="the token's principal is not UTF-8, or longer"):
        answers(lambda token: BearerToken(name, 77), first())


def test_another_authorization_id_is_refused_with_the_text_of_kafka() -> None:
    with pytest.raises(LoginRefused) as caught:
        answers(accept, first(header="n,a=bob,"))
    assert caught.value.client_text == (
        "Authentication failed: Client requested an authorization id (bob) that is different from "
        "the token's principal name (alice)"
    )


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"\xff\xfe",
        first(header="y,,"),
        first(header="n,a=,"),
        first(""),
        first("auth=Bearer\x01"),
        first("auth=Basic abc\x01"),
        first("auth=Bearer a b\x01"),
        first("auth=Bearer abc\x01bad1=x\x01"),
        first("auth=Bearer abc\x01bad=\x01"),
        first() + b"more",
        first("x=y\x01"),
    ],
)
def test_malformed_messages_are_refused_without_a_text_of_their_own(message: bytes) -> None:
    with pytest.raises(LoginRefused, match="Invalid OAUTHBEARER") as caught:
        answers(accept, message)
    assert caught.value.client_text is None


def test_no_refusal_names_the_token() -> None:
    with pytest.raises(LoginRefused) as caught:
        answers(accept, first("auth=Basic c2VjcmV0\x01"))
    assert "c2VjcmV0" not in str(caught.value)


def test_an_unsecured_token_needs_no_signature() -> None:
    token = unsecured_token(unsecured(CLAIMS), UnsecuredRules(), NOW_MS)
    assert token == ("alice", (NOW_S + 600) * 1000)


def test_a_signed_token_is_not_taken_for_an_unsecured_one() -> None:
    for token in (signed(CLAIMS), unsecured(CLAIMS) + "AA", unsecured(CLAIMS)[:-1], "", "a"):
        with pytest.raises(TokenRefused):
            unsecured_token(token, UnsecuredRules(), NOW_MS)


def test_a_missing_scope_is_named() -> None:
    rules = unsecured_rules({"unsecuredValidatorRequiredScope": " LOGIN  WRITE "})
    for scope in ("WRITE LOGIN more", ["LOGIN", "WRITE"]):
        unsecured_token(unsecured(CLAIMS | {"scope": scope}), rules, NOW_MS)
    with pytest.raises(LoginRefused) as caught:
        answers(
            lambda _: unsecured_token(unsecured(CLAIMS | {"scope": "LOGIN"}), rules, NOW_MS),
            first(),
            b"\x01",
        )
    assert caught.value.client_text == ('{"status":"insufficient_scope", "scope":"[LOGIN, WRITE]"}')


def test_times_of_unsecured_tokens_are_checked_with_the_skew() -> None:
    rules = unsecured_rules({"unsecuredValidatorAllowableClockSkewMs": "2000"})
    unsecured_token(unsecured(CLAIMS | {"exp": NOW_S - 1}), rules, NOW_MS)
    unsecured_token(unsecured(CLAIMS | {"iat": NOW_S + 2}), rules, NOW_MS)
    for claims in ({"exp": NOW_S - 2}, {"iat": NOW_S + 3}, {"exp": None}, {"exp": "x"}):
        with pytest.raises(TokenRefused):
            unsecured_token(unsecured(CLAIMS | claims), rules, NOW_MS)


def test_a_malformed_skew_stops_the_start() -> None:
    for text in ("-1", "x", "4294967296"):
        with pytest.raises(ConfigError, match="unsecuredValidatorAllowableClockSkewMs"):
            unsecured_rules({"unsecuredValidatorAllowableClockSkewMs": text})
