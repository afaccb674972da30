"""Tokens with signatures: which keys verify them, and which claims are accepted."""

from typing import Any

import pytest
from bearer_tokens import (
    CLAIMS,
    NOW_S,
    base64url,
    ed_row,
    hashed,
    key_set,
    part,
    public_row,
    signed,
    signed_by_ed,
    unsecured,
)

from spindle.security.server.oauthbearer import TokenRefused
from spindle.security.server.signing_keys import SigningKeys, UnknownKey, parse_signing_keys
from spindle.security.server.token_claims import TokenRules, bearer_token

NOW_MS = NOW_S * 1000


def keys(*rows: dict[str, Any]) -> SigningKeys:
    return parse_signing_keys(key_set(*(rows or (public_row("one"), public_row("two")))))


def refused(claims: dict[str, Any], rules: TokenRules | None = None) -> str:
    with pytest.raises(TokenRefused) as caught:
        bearer_token(claims, rules or TokenRules(), NOW_MS)
    return str(caught.value)


def test_the_key_of_the_id_verifies_a_token() -> None:
    assert keys().claims(signed(CLAIMS)) == CLAIMS
    assert keys().claims(signed(CLAIMS, "two")) == CLAIMS
    assert keys(ed_row()).claims(signed_by_ed(CLAIMS)) == CLAIMS


def test_a_token_without_an_id_is_tried_with_every_fitting_key() -> None:
    assert keys().claims(signed(CLAIMS, "two", {"alg": "ES256"})) == CLAIMS


def test_an_unknown_key_is_distinguished_from_a_wrong_signature() -> None:
    with pytest.raises(UnknownKey) as unknown:
        keys().claims(signed(CLAIMS, "three"))
    assert unknown.value.key_id == "three"
    with pytest.raises(TokenRefused, match="signature") as wrong:
        keys().claims(signed(CLAIMS, "three", {"alg": "ES256", "kid": "one"}))
    assert not isinstance(wrong.value, UnknownKey)


@pytest.mark.parametrize("part_number", [0, 1, 2])
def test_a_token_that_was_changed_is_refused(part_number: int) -> None:
    parts = signed(CLAIMS).split(".")
    parts[part_number] = signed(CLAIMS | {"sub": "bob"}, kid="one", typ="JWT").split(".")[
        part_number
    ]
    with pytest.raises(TokenRefused):
        keys().claims(".".join(parts))


def test_no_algorithm_but_those_of_key_pairs_is_accepted() -> None:
    row = public_row("one")
    for token in (
        unsecured(CLAIMS),
        unsecured(CLAIMS) + "AA",
        signed(CLAIMS, header={"alg": "none", "kid": "one"}),
        signed(CLAIMS, header={"alg": "NONE", "kid": "one"}),
        signed(CLAIMS, header={"alg": "ES256K", "kid": "one"}),
        signed(CLAIMS, header={"kid": "one"}),
        signed(CLAIMS, header={"alg": ["ES256"], "kid": "one"}),
        hashed(CLAIMS, key_set(row)),
        hashed(CLAIMS, row["x"].encode()),
    ):
        with pytest.raises(TokenRefused):
            keys(row).claims(token)


def test_a_key_serves_only_its_own_algorithm_and_curve() -> None:
    with pytest.raises(UnknownKey):
        keys(public_row("one", alg="ES384")).claims(signed(CLAIMS))
    with pytest.raises(UnknownKey):
        keys().claims(signed(CLAIMS, header={"alg": "ES384", "kid": "one"}))
    with pytest.raises(UnknownKey):
        keys().claims(signed(CLAIMS, header={"alg": "RS256", "kid": "one"}))


def test_a_critical_header_that_nobody_knows_is_refused() -> None:
    with pytest.raises(TokenRefused):
        keys().claims(signed(CLAIMS, crit=["b64"], b64=False))
    with pytest.raises(TokenRefused):
        keys().claims(signed(CLAIMS, crit=["x"], x=1))


def test_keys_of_a_token_are_not_taken() -> None:
    token = signed(CLAIMS, "three", {"alg": "ES256", "kid": "one", "jwk": public_row("three")})
    with pytest.raises(TokenRefused, match="signature"):
        keys().claims(token)


@pytest.mark.parametrize(
    "token",
    ["", ".", "..", "a.b", "a.b.c.d", f"{base64url(b'[]')}.e30.AA", "\xff.e30.AA"],
)
def test_malformed_tokens_are_refused(token: str) -> None:
    with pytest.raises(TokenRefused):
        keys().claims(token)


def test_hostile_json_is_refused() -> None:
    deep = b'{"alg":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    with pytest.raises(TokenRefused):
        keys().claims(f"{base64url(deep)}.e30.AA")
    for payload in (b"[1]", b'{"exp": NaN}', b"{", b"\xff"):
        header = part({"alg": "ES256", "kid": "one"})
        with pytest.raises(TokenRefused):
            keys().claims(f"{header}.{base64url(payload)}.AA")


def test_keys_for_encryption_and_of_other_types_are_left_out() -> None:
    odd = {"kty": "oct", "kid": "one", "k": "AAAA"}
    assert len(keys(public_row("one"), odd, public_row("two", use="enc"), {"kty": "XX"})) == 1
    for data in (b"", b"{}", b"[]", key_set(), key_set(odd), b'{"keys": 7}'):
        with pytest.raises(ValueError, match=r"it has no|it is no|Expecting value"):
            parse_signing_keys(data)


def test_a_token_has_the_principal_and_the_end_of_its_claims() -> None:
    token = bearer_token(CLAIMS | {"exp": NOW_S + 1.5}, TokenRules(), NOW_MS)
    assert token == ("alice", NOW_MS + 1500)
    rules = TokenRules(sub_claim="email", scope_claim="scp")
    assert bearer_token(CLAIMS | {"email": " a@b ", "scp": ["x"]}, rules, NOW_MS)[0] == "a@b"


def test_the_clock_skew_moves_both_ends() -> None:
    rules = TokenRules(clock_skew_s=30)
    bearer_token(CLAIMS | {"exp": NOW_S - 29, "iat": NOW_S - 60}, rules, NOW_MS)
    assert "expired" in refused(CLAIMS | {"exp": NOW_S - 30, "iat": NOW_S - 60}, rules)
    bearer_token(CLAIMS | {"nbf": NOW_S + 30}, rules, NOW_MS)
    assert "begins later" in refused(CLAIMS | {"nbf": NOW_S + 31}, rules)
    assert "ends before" in refused(CLAIMS | {"nbf": NOW_S + 20, "exp": NOW_S + 10}, rules)


@pytest.mark.parametrize("name", ["exp", "iat", "sub"])
@pytest.mark.parametrize("value", [None, "", " ", True, [], {}, -1])
def test_a_claim_that_is_missing_or_malformed_is_refused(name: str, value: object) -> None:
    assert name in refused(CLAIMS | {name: value})


def test_a_time_beyond_every_calendar_fits_into_an_answer() -> None:
    for value in (1e300, float("inf"), 10**400):
        token = bearer_token(CLAIMS | {"exp": value}, TokenRules(), NOW_MS)
        assert token.expires_at_ms - NOW_MS < 2**63


def test_the_issuer_is_compared_as_a_whole() -> None:
    rules = TokenRules(issuer="https://id.example")
    bearer_token(CLAIMS | {"iss": "https://id.example"}, rules, NOW_MS)
    for issuer in (None, "https://id.example/", "id.example", ["https://id.example"]):
        assert "iss" in refused(CLAIMS | {"iss": issuer}, rules)


def test_a_token_for_another_service_is_refused_even_if_none_is_expected() -> None:
    rules = TokenRules(audiences=("kafka", "streams"))
    bearer_token(CLAIMS | {"aud": ["web", "kafka"]}, rules, NOW_MS)
    bearer_token(CLAIMS | {"aud": "streams"}, rules, NOW_MS)
    audiences: tuple[object, ...] = (None, "web", [], [1], {})
    for audience in audiences:
        text = refused(CLAIMS | {"aud": audience}, rules)
        assert "audience" in text or "expected is kafka, streams" in text


def test_scopes_are_texts_and_stand_once() -> None:
    usable: tuple[object, ...] = ("a b", ["a", "b"], [], None, 7)
    for scope in usable:
        bearer_token(CLAIMS | {"scope": scope}, TokenRules(), NOW_MS)
    unusable: tuple[object, ...] = ("", " ", ["a", ""], ["a", 1], ["a", " a"])
    for scope in unusable:
        assert "scope" in refused(CLAIMS | {"scope": scope})
