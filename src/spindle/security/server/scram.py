"""SCRAM on the server (RFC 5802, 7677; KIP-84), with delegation tokens as users (KIP-48).

A client that names an unknown user gets a challenge as well, and is refused after its proof: it
cannot tell that the user does not exist. In Kafka it is refused at once.
"""

import hmac
import secrets
from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from spindle.security.scram import (
    DEFAULT_ITERATIONS,
    MIN_ITERATIONS,
    ClientFirst,
    ScramCredential,
    ScramError,
    ScramMechanism,
    is_proof,
    parse_client_final,
    parse_client_first,
    server_final,
    server_first,
    server_signature,
)
from spindle.security.server.fake_credentials import InventedCredentials
from spindle.security.server.mechanism import LoggedIn, LoginRefused, ServerExchange

_NONCE_BYTES: Final = 24
TOKEN_SALT_BYTES: Final = 20
_SECRET: Final = secrets.token_bytes(32)
"""Makes the salts of unknown tokens. Those of known tokens differ between processes, too."""


class TokenCredential(NamedTuple):
    """The credential of a delegation token.

    Attributes:
        owner: the principal of the token's owner, `User:alice`.
        expires_at_ms: the end of the token, as Unix time.
    """

    owner: str
    credential: ScramCredential
    expires_at_ms: int


TokenOf: TypeAlias = Callable[[str], TokenCredential | None]
"""Returns the credential of a delegation token by its id, None if there is none."""


class ScramServer:
    """A SCRAM mechanism of a listener.

    Args:
        credential_of: returns the credential of a user of this mechanism, None if it has none.
        token_of: returns the credential of a delegation token by its id, None if there is none.
        invented: returns the credential for the challenge to an unknown user.
        new_nonce: returns at least 18 random bytes as printable text without a comma.
    """

    def __init__(
        self,
        mechanism: ScramMechanism,
        credential_of: Callable[[str], ScramCredential | None],
        token_of: TokenOf = lambda token_id: None,
        invented: Callable[[str], ScramCredential] | None = None,
        new_nonce: Callable[[], str] = lambda: secrets.token_urlsafe(_NONCE_BYTES),
    ) -> None:
        self._mechanism = mechanism
        self._credential_of = credential_of
        self._token_of = token_of
        self._invented = invented or InventedCredentials(mechanism).credential
        self._new_nonce = new_nonce

    def exchange(self) -> ServerExchange:
        """Check the proof of the client, and prove that the server has the credential."""
        user = ""
        try:
            first = parse_client_first((yield b""))
            user = first.user
            if first.authorization_id not in ("", user):
                text = "Client requested an authorization id that is different from username"
                raise LoginRefused(text, user=user, client_text=f"Authentication failed: {text}")
            token, known = None, None
            if first.is_token:
                token = self._token_of(user)
                known = token.credential if token is not None else None
                invented = self._invented_token(user)
            else:
                known = self._credential_of(user)
                # Made for known users, too: the time of an answer must not tell which ones exist.
                invented = self._invented(user)
            credential = known or invented
            nonce = first.nonce + self._new_nonce()
            challenge = server_first(nonce, credential)
            final = parse_client_final((yield challenge.encode()), first.header, nonce)
        except ScramError as error:
            raise LoginRefused(str(error), user=user) from None
        auth_message = f"{first.bare},{challenge},{final.without_proof}"
        proves = is_proof(self._mechanism, credential.stored_key, auth_message, final.proof)
        reason = _refusal(first, known, proves=proves)
        if reason is not None:
            raise LoginRefused(reason, user=user)
        signature = server_signature(self._mechanism, credential.server_key, auth_message)
        answer = server_final(signature)
        if token is not None:
            owner = token.owner.partition(":")[2]
            return LoggedIn(owner, answer, token.expires_at_ms, is_token=True)
        return LoggedIn(user, answer)

    def _invented_token(self, token_id: str) -> ScramCredential:
        """Return a credential that no password fits, in the form of those of tokens."""
        salt = hmac.digest(_SECRET, f"{self._mechanism.text} {token_id}".encode(), "sha256")
        key = secrets.token_bytes(self._mechanism.hash_bytes)
        return ScramCredential(salt[:TOKEN_SALT_BYTES], key, key, DEFAULT_ITERATIONS)


def _refusal(first: ClientFirst, known: ScramCredential | None, *, proves: bool) -> str | None:
    """Return why a client is refused, for the log of this node."""
    if known is None:
        return "unknown delegation token" if first.is_token else "unknown user"
    if known.iterations < MIN_ITERATIONS:
        return (
            f"the credential has {known.iterations} iterations, at least {MIN_ITERATIONS} are "
            "wanted; set the password again"
        )
    return None if proves else "wrong password"
