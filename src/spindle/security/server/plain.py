"""PLAIN on the server (RFC 4616): a user name and a password, checked against a list.

The texts for clients are those of Kafka. They do not show whether a user exists.
"""

import hashlib
import hmac
from collections.abc import Mapping
from typing import Final

from spindle.common.errors import ConfigError
from spindle.security.jaas import LoginModule
from spindle.security.mechanism_names import LOGIN_MODULES, PLAIN
from spindle.security.secret import Secret
from spindle.security.server.mechanism import LoggedIn, LoginRefused, ServerExchange

_USER: Final = "user_"
_PARTS: Final = 3


def plain_users(module: LoginModule) -> dict[str, Secret]:
    """Return the passwords of a server's login module: the options `user_NAME="password"`.

    Raises:
        ConfigError: the module is another one, has no user, or has a user whom no client can name.
    """
    wanted = LOGIN_MODULES[PLAIN]
    if module.class_name != wanted:
        raise ConfigError(f"want the login module {wanted}")
    users = {
        key.removeprefix(_USER): Secret(password)
        for key, password in module.options.items()
        if key.startswith(_USER)
    }
    if not users:
        raise ConfigError(
            'the login module has no user, so nobody could log in; add user_NAME="password"'
        )
    for name, password in users.items():
        if not name or not password.text or "\0" in name + password.text:
            raise ConfigError(
                f"{_USER}{name}: name and password must not be empty and have no NUL character"
            )
    return users


def plain_server_exchange(users: Mapping[str, Secret]) -> ServerExchange:
    """Check the user name and the password in the one message of a client."""
    authorization_id, name, password = _parts((yield b""))
    if not name:
        raise _refused("username not specified")
    if not password:
        raise _refused("password not specified", name)
    expected = users.get(name)
    # The check takes the same time for an unknown user.
    matches = _is_same(password, expected.text if expected is not None else "")
    if expected is None or not matches:
        reason = "unknown user" if expected is None else "wrong password"
        text = "Authentication failed: Invalid username or password"
        raise LoginRefused(reason, user=name, client_text=text)
    if authorization_id not in ("", name):
        raise _refused("Client requested an authorization id that is different from username", name)
    return LoggedIn(name)


def _parts(message: bytes) -> list[str]:
    """Return the authorization id, the user name and the password."""
    try:
        parts = message.decode().split("\0", _PARTS)
    except UnicodeDecodeError:
        raise _refused("Invalid SASL/PLAIN response: not UTF-8") from None
    if len(parts) != _PARTS:
        text = f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}"
        raise LoginRefused(text, client_text=text)
    return parts


def _refused(text: str, user: str = "") -> LoginRefused:
    return LoginRefused(text, user=user, client_text=f"Authentication failed: {text}")


def _is_same(given: str, expected: str) -> bool:
    # Digests have one length, so the time does not reveal that of the password.
    digests = (hashlib.sha256(text.encode()).digest() for text in (given, expected))
    return hmac.compare_digest(*digests)
