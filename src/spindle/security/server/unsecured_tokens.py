"""Tokens without a signature, for tests: whoever can connect can be any user.

The rules and options are those of Kafka's OAuthBearerUnsecuredValidatorCallbackHandler.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spindle.common.errors import ConfigError
from spindle.security.server.oauthbearer import BearerToken, TokenRefused
from spindle.security.server.token_claims import LATEST_MS
from spindle.security.server.token_json import from_base64url, json_object


@dataclass(frozen=True, slots=True)
class UnsecuredRules:
    """The options `unsecuredValidator*` of the login module."""

    principal_claim: str = "sub"
    scope_claim: str = "scope"
    required_scope: tuple[str, ...] = ()
    clock_skew_ms: int = 0


def unsecured_rules(options: Mapping[str, str]) -> UnsecuredRules:
    """Return the rules of a login module.

    Raises:
        ConfigError: the clock skew is not a number of milliseconds.
    """
    prefix = "unsecuredValidator"
    skew = options.get(f"{prefix}AllowableClockSkewMs", "").strip() or "0"
    if not (skew.isascii() and skew.isdecimal() and int(skew) < 2**31):
        raise ConfigError(
            f"sasl.jaas.config: {prefix}AllowableClockSkewMs is {skew[:40]!r}, want 0 to "
            f"{2**31 - 1}"
        )
    return UnsecuredRules(
        options.get(f"{prefix}PrincipalClaimName", "").strip() or "sub",
        options.get(f"{prefix}ScopeClaimName", "").strip() or "scope",
        tuple(options.get(f"{prefix}RequiredScope", "").split()),
        int(skew),
    )


def unsecured_token(token: str, rules: UnsecuredRules, now_ms: int) -> BearerToken:
    """Return the token of an unsigned JWT.

    Raises:
        TokenRefused: it is malformed, signed, expired, or lacks a scope.
    """
    claims = _claims(token)
    principal = claims.get(rules.principal_claim)
    if not isinstance(principal, str) or not principal:
        raise TokenRefused(f"the token's claim {rules.principal_claim} is not a name")
    issued_s, expires_s = _seconds(claims, "iat"), _seconds(claims, "exp")
    if issued_s is not None and issued_s * 1000 > now_ms + rules.clock_skew_ms:
        raise TokenRefused("the token is issued later than now")
    if expires_s is None or now_ms - rules.clock_skew_ms >= expires_s * 1000:
        raise TokenRefused("the token is expired, or has no claim exp")
    if issued_s is not None and expires_s <= issued_s:
        raise TokenRefused("the token ends before it is issued")
    claim = claims.get(rules.scope_claim)
    scope = claim.split() if isinstance(claim, str) else claim
    if not all(isinstance(scope, list) and name in scope for name in rules.required_scope):
        wanted = f"[{', '.join(rules.required_scope)}]"
        raise TokenRefused(f"the token lacks a scope of {wanted}", scope=wanted)
    return BearerToken(principal, min(int(expires_s * 1000), LATEST_MS))


def _claims(token: str) -> dict[str, Any]:
    header, _, rest = token.partition(".")
    payload, dot, signature = rest.partition(".")
    try:
        algorithm = json_object(from_base64url(header)).get("alg")
        claims = json_object(from_base64url(payload))
    except ValueError as error:
        raise TokenRefused(f"the token is malformed: {error}") from None
    if algorithm != "none" or not dot or signature:
        raise TokenRefused("the token is signed, but this listener takes unsecured ones only")
    return claims


def _seconds(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TokenRefused(f"the token's claim {name} is not a time")
    return max(-LATEST_MS, min(value, LATEST_MS))
