"""Logins with delegation tokens: SCRAM, with a token's id as the user (KIP-48)."""

import secrets
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from spindle.metadata.image import MetadataImage
from spindle.security.delegation_tokens import token_password
from spindle.security.scram import (
    DEFAULT_ITERATIONS,
    ScramCredential,
    ScramMechanism,
    salted_password,
    server_key,
    stored_key,
)
from spindle.security.secret import Secret
from spindle.security.server.scram import TOKEN_SALT_BYTES, TokenCredential

_MAX_KEPT: Final = 10_000


class TokenLogins:
    """The credentials of the tokens in the metadata, for one mechanism.

    A credential takes milliseconds to compute, so it is cached at the first login. It depends on
    the id alone; each login checks that the token still exists.

    Args:
        image: returns the newest metadata of this node.
        now_ms: the wall clock.
    """

    def __init__(
        self,
        secret: Secret,
        mechanism: ScramMechanism,
        image: Callable[[], MetadataImage],
        now_ms: Callable[[], int],
    ) -> None:
        self._secret = secret
        self._mechanism = mechanism
        self._image = image
        self._now_ms = now_ms
        self._kept: OrderedDict[str, ScramCredential] = OrderedDict()

    def credential(self, token_id: str) -> TokenCredential | None:
        """Return the credential of a token, None if there is no such token or it has expired."""
        token = self._image().security.delegation_tokens.get(token_id)
        if token is None or token.is_expired(self._now_ms()):
            return None
        kept = self._kept.get(token_id)
        if kept is None:
            kept = self._kept[token_id] = self._computed(token_id)
            if len(self._kept) > _MAX_KEPT:
                self._kept.popitem(last=False)
        return TokenCredential(token.owner, kept, token.expires_at_ms)

    def _computed(self, token_id: str) -> ScramCredential:
        mechanism, salt = self._mechanism, secrets.token_bytes(TOKEN_SALT_BYTES)
        password = token_password(self._secret, token_id)
        salted = salted_password(mechanism, password, salt, DEFAULT_ITERATIONS)
        return ScramCredential(
            salt, stored_key(mechanism, salted), server_key(mechanism, salted), DEFAULT_ITERATIONS
        )
