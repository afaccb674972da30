"""OAUTHBEARER on the server (RFC 7628; KIP-255): a token in, its principal or an error out.

The extensions of a client (KIP-342) must have the right form. Kafka's handlers accept all of them,
and nothing here depends on them.
"""

import re
from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from spindle.security.server.mechanism import LoggedIn, LoginRefused, ServerExchange

_SEPARATOR: Final = "\x01"
_NAME: Final = r"(?:[\x02-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_PAIR: Final = r"[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01"
_CLIENT_FIRST: Final = re.compile(rf"n,(?:a=({_NAME}))?,\x01((?:{_PAIR})*)\x01")
_AUTH: Final = re.compile(r"(\w+) +([-_~+/.a-zA-Z0-9]+=*)", re.ASCII)
_FIRST_KEY: Final = "auth"
_MALFORMED: Final = "Invalid OAUTHBEARER client first message"
_SHOWN_CHARACTERS: Final = 40
_MAX_NAME: Final = 32_767


class BearerToken(NamedTuple):
    """A token that is valid.

    Attributes:
        expires_at_ms: as Unix time.
    """

    principal: str
    expires_at_ms: int


class TokenRefused(Exception):
    """A token is not valid. The text is for the log of this node and names no secret.

    Attributes:
        scope: the scope that is missing, as sent to the client.
    """

    def __init__(self, reason: str, *, scope: str | None = None) -> None:
        super().__init__(reason)
        self.scope = scope


ValidateToken: TypeAlias = Callable[[str], BearerToken]
"""Returns a valid token, or raises TokenRefused."""


def oauthbearer_exchange(validate: ValidateToken) -> ServerExchange:
    """Check the token of a client.

    A client whose token is refused gets the error as JSON, acknowledges it, and then gets the
    failure of the login (RFC 7628, section 3.2.3).
    """
    text, authorization_id = _token((yield b""))
    try:
        token = validate(text)
    except TokenRefused as refusal:
        error = error_json(refusal)
        yield error.encode()
        raise LoginRefused(str(refusal), client_text=error) from None
    if not _is_name(token.principal):
        raise LoginRefused(f"the token's principal is not UTF-8, or longer than {_MAX_NAME} bytes")
    if authorization_id not in ("", token.principal):
        raise LoginRefused(
            "it asks for another principal than that of its token",
            user=token.principal,
            client_text=f"Authentication failed: Client requested an authorization id "
            f"({authorization_id}) that is different from the token's principal name "
            f"({token.principal})",
        )
    return LoggedIn(token.principal, expires_at_ms=token.expires_at_ms)


def error_json(refusal: TokenRefused) -> str:
    """Return the error in the form and with the spaces of Kafka."""
    if refusal.scope is None:
        return '{"status":"invalid_token"}'
    return f'{{"status":"insufficient_scope", "scope":"{refusal.scope}"}}'


def _is_name(principal: str) -> bool:
    """Return whether the name can be sent to other nodes: JSON escapes allow invalid text."""
    try:
        return len(principal.encode()) <= _MAX_NAME
    except UnicodeEncodeError:
        return False


def _token(message: bytes) -> tuple[str, str]:
    """Return the token and the authorization id of the first message of a client."""
    try:
        match = _CLIENT_FIRST.fullmatch(message.decode())
    except UnicodeDecodeError:
        match = None
    if match is None:
        raise LoginRefused(_MALFORMED)
    pairs = dict(pair.split("=", 1) for pair in match[2].split(_SEPARATOR)[:-1])
    auth = pairs.get(_FIRST_KEY)
    if auth is None:
        raise LoginRefused(f"{_MALFORMED}: 'auth' not specified")
    authorization = _AUTH.fullmatch(auth)
    if authorization is None:
        raise LoginRefused(f"{_MALFORMED}: invalid 'auth' format")
    if authorization[1].lower() != "bearer":
        raise LoginRefused(f"{_MALFORMED}: invalid scheme {authorization[1][:_SHOWN_CHARACTERS]!r}")
    return authorization[2], match[1] or ""
