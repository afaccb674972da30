"""Fake SCRAM credentials for unknown users, against user enumeration.

All nodes of a cluster invent the same credential for a name. It has the form of an existing one:
the number of iterations, and the length and characters of the salt.
"""

import heapq
import hmac
import secrets
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping
from hashlib import shake_256
from itertools import accumulate
from typing import Any, Final, NamedTuple, TypeAlias

from spindle.security.scram import DEFAULT_ITERATIONS, ScramCredential, ScramMechanism
from spindle.security.secret import Secret

StoredCredentials: TypeAlias = Mapping[Any, ScramCredential]
"""The credentials in the metadata, by pairs of name and mechanism; replaced as a whole."""

_OF_PROCESS: Final = secrets.token_bytes(32)
_SOURCES: Final = 8
"""Credentials that make the key. Few, so that most credential changes keep the key; more than one,
so that no user can compute it."""
_DIGITS: Final = b"0123456789abcdefghijklmnopqrstuvwxyz"
_KAFKA_BITS: Final = 130
_KAFKA_LENGTHS: Final = (25, 26)


class _Form(NamedTuple):
    """The traits of a credential that a challenge shows.

    Attributes:
        is_text: the salt has digits and lower case letters only, as those of Kafka's tools.
    """

    salt_bytes: int
    iterations: int
    is_text: bool


_OWN_FORM: Final = _Form(32, DEFAULT_ITERATIONS, is_text=False)
"""The form of the credentials that Spindle's tools set."""


class InventedCredentials:
    """Invents the credentials of one mechanism.

    Args:
        stored: returns the credentials in the metadata, of all mechanisms.
        secret: a secret that all nodes share; without one, the credentials make the key.
    """

    def __init__(
        self,
        mechanism: ScramMechanism,
        stored: Callable[[], StoredCredentials] = dict,
        secret: Secret | None = None,
    ) -> None:
        self._mechanism = mechanism
        self._stored = stored
        self._secret = secret
        self._seen: StoredCredentials | None = None
        self._key = b""
        self._forms = [_OWN_FORM]
        self._ends = [1]

    def credential(self, user: str) -> ScramCredential:
        """Return a credential that no password fits; salt and iterations depend on the name."""
        stored = self._stored()
        if stored is not self._seen:
            self._learn(stored)
        seed = hmac.digest(self._key, f"{self._mechanism.text} {user}".encode(), "sha512")
        place = int.from_bytes(seed) * self._ends[-1] >> 8 * len(seed)
        form = self._forms[bisect_right(self._ends, place)]
        never = secrets.token_bytes(self._mechanism.hash_bytes)
        return ScramCredential(_salt(seed, form), never, never, form.iterations)

    def _learn(self, stored: StoredCredentials) -> None:
        """Count the credentials of each form, and derive the key."""
        counts = Counter(
            _form(credential)
            for (_, mechanism), credential in stored.items()
            if mechanism == self._mechanism
        ) or Counter([_OWN_FORM])
        self._forms = sorted(counts)
        self._ends = list(accumulate(counts[form] for form in self._forms))
        if self._secret is not None:
            source = self._secret.text.encode()
        else:
            keys = (credential.server_key for credential in stored.values())
            source = b"".join(heapq.nsmallest(_SOURCES, keys)) or _OF_PROCESS
        self._key = hmac.digest(source, b"unknown users of SCRAM", "sha256")
        self._seen = stored


def _form(credential: ScramCredential) -> _Form:
    salt = credential.salt
    is_text = bool(salt) and not salt.strip(_DIGITS)
    return _Form(len(salt), credential.iterations, is_text)


def _salt(seed: bytes, form: _Form) -> bytes:
    """Return a salt that looks like a random one of its form."""
    stream = shake_256(seed + repr(form).encode())
    if not form.is_text:
        return stream.digest(form.salt_bytes)
    if form.salt_bytes in _KAFKA_LENGTHS:
        # A number of 130 bits with base 36, so that the first digits are as likely as Kafka's.
        number, salt = int.from_bytes(stream.digest(17)) >> 17 * 8 - _KAFKA_BITS, bytearray()
        while number:
            number, digit = divmod(number, len(_DIGITS))
            salt.append(_DIGITS[digit])
        return bytes(reversed(salt))
    return bytes(_DIGITS[byte % len(_DIGITS)] for byte in stream.digest(form.salt_bytes))
