"""The claims of a signed token, by the rules of Kafka's OAuthBearerValidatorCallbackHandler.

A token must have `exp` and `iat`. `nbf` is checked where it is present, `iss` and `aud` where a
value is expected. Without `sasl.oauthbearer.allow.unverified.*` a value must be expected.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from spindle.security.server.oauthbearer import BearerToken, TokenRefused

LATEST_MS: Final = 2**62
"""Later times are cut, so that a lifetime fits into the 64 bits of an answer."""


@dataclass(frozen=True, slots=True)
class TokenRules:
    """The rules of a listener for signed tokens: the keys `sasl.oauthbearer.*`.

    Attributes:
        audiences: one of them must be in the token; empty if any will do.
        issuer: None if any will do.
    """

    audiences: tuple[str, ...] = ()
    issuer: str | None = None
    clock_skew_s: int = 30
    scope_claim: str = "scope"
    sub_claim: str = "sub"


def bearer_token(claims: Mapping[str, Any], rules: TokenRules, now_ms: int) -> BearerToken:
    """Return the token of these claims, whose signature has been checked.

    Raises:
        TokenRefused: a claim is missing, malformed, or not as expected.
    """
    expires_s = _time(claims, "exp")
    issued_s = _time(claims, "iat")
    if expires_s is None or issued_s is None:
        raise TokenRefused(f"the token has no claim {'exp' if expires_s is None else 'iat'}")
    now_s = now_ms / 1000
    if now_s - rules.clock_skew_s >= expires_s:
        raise TokenRefused(f"the token is expired: exp is {expires_s:.0f}, the time {now_s:.0f}")
    begins_s = _time(claims, "nbf")
    if begins_s is not None and now_s + rules.clock_skew_s < begins_s:
        raise TokenRefused(f"the token begins later: nbf is {begins_s:.0f}, the time {now_s:.0f}")
    if expires_s < issued_s or (begins_s is not None and expires_s < begins_s):
        raise TokenRefused("the token ends before it begins: exp is before iat or nbf")
    _check_issuer(claims, rules)
    _check_audience(claims, rules)
    _check_scope(claims, rules)
    principal = claims.get(rules.sub_claim)
    if not isinstance(principal, str) or not principal.strip():
        raise TokenRefused(f"the token's claim {rules.sub_claim} is not a name")
    return BearerToken(principal.strip(), min(int(expires_s * 1000), LATEST_MS))


def _time(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise TokenRefused(f"the token's claim {name} is not a time")
    return min(value, LATEST_MS)


def _check_issuer(claims: Mapping[str, Any], rules: TokenRules) -> None:
    issuer = claims.get("iss")
    if issuer is not None and not isinstance(issuer, str):
        raise TokenRefused("the token's claim iss is not text")
    if rules.issuer is not None and issuer != rules.issuer:
        raise TokenRefused(f"the token's issuer {issuer!r:.200} is not {rules.issuer!r}")


def _check_audience(claims: Mapping[str, Any], rules: TokenRules) -> None:
    if not rules.audiences:
        return
    claim = claims.get("aud")
    audiences = [claim] if isinstance(claim, str) else claim
    if not isinstance(audiences, list) or not all(
        isinstance(audience, str) for audience in audiences
    ):
        raise TokenRefused("the token's audience is missing or malformed")
    if not set(audiences) & set(rules.audiences):
        expected = ", ".join(rules.audiences)
        raise TokenRefused(f"the token is for {audiences!r:.200}, expected is {expected}")


def _check_scope(claims: Mapping[str, Any], rules: TokenRules) -> None:
    """Check the form of a scope. Rights come from ACLs, as in Kafka."""
    claim = claims.get(rules.scope_claim)
    scopes = claim if isinstance(claim, list) else [claim] if isinstance(claim, str) else []
    if not all(isinstance(scope, str) and scope.strip() for scope in scopes):
        raise TokenRefused(f"the token's claim {rules.scope_claim} has an empty scope")
    if len({scope.strip() for scope in scopes}) != len(scopes):
        raise TokenRefused(f"the token's claim {rules.scope_claim} has a scope twice")
