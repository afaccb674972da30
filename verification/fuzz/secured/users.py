"""The users of a secured node: an administrator, the canary, and a user without rights."""

import secrets
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from spindle.client.security.mechanisms import (
    SaslExchange,
    plain_exchange,
    scram_exchange,
    token_exchange,
)
from spindle.client.security.settings import PlainLogin, ScramLogin
from spindle.security.mechanism_names import OAUTHBEARER, PLAIN
from spindle.security.scram import SCRAM_MECHANISMS
from spindle.security.secret import Secret
from verification.fuzz.secured.bearer_tokens import TokenIssuer
from verification.fuzz.values import USERS

ADMIN, CANARY, STRANGER = USERS
_NONCE_BYTES: Final = 24


@dataclass(frozen=True, slots=True)
class FuzzUsers:
    """The passwords of all users, by name, and the provider that signs their tokens.

    Attributes:
        delegation_tokens: ids of tokens that attackers know, with the passwords that they have.
    """

    passwords: dict[str, Secret] = field(
        default_factory=lambda: {user: Secret(secrets.token_urlsafe(18)) for user in USERS}
    )
    issuer: TokenIssuer = field(default_factory=TokenIssuer)
    delegation_tokens: dict[str, Secret] = field(default_factory=dict)

    def exchange(self, user: str, mechanism: str) -> SaslExchange:
        """Return the client's side of a sound login."""
        password = self.passwords[user]
        if mechanism == PLAIN:
            return plain_exchange(PlainLogin(user, password))
        if mechanism == OAUTHBEARER:
            return token_exchange(Secret(self.issuer.token(user)), ())
        login = ScramLogin(SCRAM_MECHANISMS[mechanism], user, password)
        return scram_exchange(login, partial(secrets.token_urlsafe, _NONCE_BYTES))
