"""SCRAM credentials given at format time (KIP-900, RFC 5802)."""

import binascii
from base64 import b64decode
from collections.abc import Callable
from typing import Final, NamedTuple

from spindle.common.errors import ConfigError
from spindle.protocol.messages.metadata_records import UserScramCredentialRecord
from spindle.security.scram import (
    DEFAULT_ITERATIONS,
    MAX_STORED_ITERATIONS,
    MIN_ITERATIONS,
    SCRAM_MECHANISMS,
    ScramMechanism,
    salted_password,
    server_key,
    stored_key,
)
from spindle.security.secret import HIDDEN

SALT_BYTES: Final = 32


def parse_scram(text: str, random_bytes: Callable[[int], bytes]) -> UserScramCredentialRecord:
    """Return the record of
    `MECHANISM=[name=..,password=..,iterations=..,salt=..,saltedpassword=..]`.

    Raises:
        ConfigError: names the part that cannot be used.
    """
    name, equals, parts_text = text.strip().partition("=")
    if not equals:
        raise ConfigError(f"Failed to find equals sign in SCRAM argument '{text}'")
    mechanism = SCRAM_MECHANISMS.get(name)
    if mechanism is None:
        raise ConfigError(f"The add-scram mechanism {name} is not supported.")
    if not parts_text.startswith("["):
        raise ConfigError("Expected configuration string to start with [")
    if not parts_text.endswith("]"):
        raise ConfigError("Expected configuration string to end with ]")
    parts = dict(map(_split_part, parts_text[1:-1].split(",")))
    user = parts.pop("name", None)
    if user is None:
        raise ConfigError("You must supply 'name' to add-scram")
    salt = _decoded(parts.pop("salt", None), "salt")
    iterations = _iterations(parts.pop("iterations", None), name)
    salted = _salted(parts, mechanism, salt, iterations, random_bytes)
    if parts:
        raise ConfigError(f"Unknown SCRAM configurations: {', '.join(sorted(parts))}")
    return UserScramCredentialRecord(
        name=user,
        mechanism=mechanism,
        salt=salted.salt,
        stored_key=stored_key(mechanism, salted.password),
        server_key=server_key(mechanism, salted.password),
        iterations=iterations,
    )


class _Salted(NamedTuple):
    salt: bytes
    password: bytes


def _salted(
    parts: dict[str, str],
    mechanism: ScramMechanism,
    salt: bytes | None,
    iterations: int,
    random_bytes: Callable[[int], bytes],
) -> _Salted:
    password = parts.pop("password", None)
    salted = parts.pop("saltedpassword", None)
    if password is not None:
        used_salt = random_bytes(SALT_BYTES) if salt is None else salt
        return _Salted(
            used_salt,
            salted_password(mechanism, password, used_salt, iterations),
        )
    if salted is None:
        raise ConfigError("You must supply one of 'password' or 'saltedpassword' to add-scram")
    if salt is None:
        raise ConfigError("You must supply 'salt' with 'saltedpassword' to add-scram")
    return _Salted(salt, _decoded(salted, "saltedPassword") or b"")


def _split_part(part: str) -> tuple[str, str]:
    key, equals, value = part.partition("=")
    if not equals:
        raise ConfigError(f"No equals sign found in SCRAM component: {part}")
    if len(value) >= 2 and value[0] == value[-1] == '"':
        value = value[1:-1]
    return key, value


def _decoded(text: str | None, what: str) -> bytes | None:
    if text is None:
        return None
    try:
        return b64decode(text, validate=True)
    except binascii.Error:
        shown = text if what == "salt" else HIDDEN
        raise ConfigError(f"Failed to decode given {what}: {shown}") from None


def _iterations(text: str | None, mechanism: str) -> int:
    shown = mechanism.replace("-", "_")
    if text is None:
        return DEFAULT_ITERATIONS
    if not text.isdecimal():
        raise ConfigError(f"Failed to parse iterations count: {text}")
    iterations = int(text)
    if iterations < MIN_ITERATIONS:
        raise ConfigError(
            f"The 'iterations' value must be >= {MIN_ITERATIONS} for add-scram using {shown}"
        )
    if iterations > MAX_STORED_ITERATIONS:
        raise ConfigError(
            f"The 'iterations' value must be <= {MAX_STORED_ITERATIONS} for add-scram using {shown}"
        )
    return iterations
