"""Make the logins of a client, or of a node that connects to others."""

import secrets
from typing import Final

from spindle.client.security.login import LoginFlow, sasl_login
from spindle.client.security.mechanisms import (
    SaslExchange,
    mechanism_of,
    plain_exchange,
    scram_exchange,
    token_exchange,
)
from spindle.client.security.settings import PlainLogin, SaslLogin, ScramLogin
from spindle.client.security.token_settings import TokenLogin
from spindle.client.security.tokens import TokenSource

_NONCE_BYTES: Final = 24


class LoginSource:
    """The logins of one user. A token of an endpoint serves several of them."""

    def __init__(self, login: SaslLogin) -> None:
        self.mechanism: Final = mechanism_of(login)
        self._login = login
        self._tokens = TokenSource(login) if isinstance(login, TokenLogin) else None

    def flow(self) -> LoginFlow:
        """Return the steps of a login. A token may be read or requested, which blocks.

        Raises:
            ConfigError: a token file cannot be read.
            SaslFailed: a token endpoint refuses.
            ConnectionLost: a token endpoint cannot be reached.
        """
        return sasl_login(self.mechanism, self._exchange())

    def _exchange(self) -> SaslExchange:
        match self._login:
            case PlainLogin() as login:
                return plain_exchange(login)
            case ScramLogin() as login:
                return scram_exchange(login, lambda: secrets.token_urlsafe(_NONCE_BYTES))
            case TokenLogin() as login:
                assert self._tokens is not None
                return token_exchange(self._tokens.token(), login.extensions)
