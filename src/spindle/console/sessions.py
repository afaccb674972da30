"""Sessions of the console: logins, end of sessions, tokens against forged forms."""

import base64
import binascii
import hashlib
import hmac
import os
import secrets
import stat
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from spindle.common.errors import ConfigError

IDLE_S: Final = 30 * 60.0
"""A session without requests ends after this time."""
MAX_AGE_S: Final = 12 * 3600.0
_MAX_SESSIONS: Final = 1_000
_MIN_PASSWORD: Final = 8
MAX_FAILURES: Final = 10
"""Failed logins within `_FAILURES_S` after which further ones are refused."""
_FAILURES_S: Final = 60.0


def read_logins(file: Path) -> dict[str, str]:
    """Return the passwords or tokens in a file of lines `NAME:PASSWORD`, by name.

    Empty lines and lines that begin with `#` are left out.

    Raises:
        ConfigError: others may read the file, it has no login, or a line is malformed.
        OSError: it cannot be read.
    """
    mode = stat.S_IMODE(os.stat(file).st_mode)
    if mode & 0o077:
        raise ConfigError(f"{file} has mode {mode:o}: passwords need 600 (chmod 600 {file})")
    logins: dict[str, str] = {}
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, colon, password = line.partition(":")
        if not name or not colon or not name.isprintable():
            raise ConfigError(f"{file} line {number}: not NAME:PASSWORD")
        if len(password) < _MIN_PASSWORD:
            raise ConfigError(
                f"{file} line {number}: the password of {name} has {len(password)} characters; "
                f"at least {_MIN_PASSWORD} are needed"
            )
        logins[name] = password
    if not logins:
        raise ConfigError(f"{file} has no line NAME:PASSWORD")
    return logins


@dataclass(slots=True)
class Session:
    """A browser. `user` is None until it has logged in."""

    session_id: str
    user: str | None
    begin_s: float
    last_s: float


class ConsoleSessions:
    """The sessions of a console.

    Args:
        logins: passwords by name; empty if everyone who reaches the console may use it.
        local_user: the name in the log of actions where there are no logins.
    """

    def __init__(
        self,
        logins: Mapping[str, str],
        local_user: str,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._logins = {name: _digest(password) for name, password in logins.items()}
        self._local_user = local_user
        self._clock_s = clock_s
        self._secret = secrets.token_bytes(32)
        self._sessions: dict[str, Session] = {}
        self._failures_s: list[float] = []

    @property
    def needs_login(self) -> bool:
        return bool(self._logins)

    def find(self, session_id: str | None) -> Session | None:
        """Return a session that has not ended, and renew its idle time."""
        session = self._sessions.get(session_id or "")
        if session is None:
            return None
        now_s = self._clock_s()
        if now_s - session.last_s > IDLE_S or now_s - session.begin_s > MAX_AGE_S:
            del self._sessions[session.session_id]
            return None
        session.last_s = now_s
        return session

    def begin(self, user: str | None = None) -> Session:
        """Begin a session, with a new id; the one idle for the longest time ends if needed."""
        if len(self._sessions) >= _MAX_SESSIONS:
            oldest = min(self._sessions.values(), key=lambda session: session.last_s)
            del self._sessions[oldest.session_id]
        now_s = self._clock_s()
        name = user if self._logins else self._local_user
        session = Session(secrets.token_urlsafe(24), name, now_s, now_s)
        self._sessions[session.session_id] = session
        return session

    def end(self, session: Session) -> None:
        """End a session."""
        self._sessions.pop(session.session_id, None)

    def is_locked(self) -> bool:
        """Return whether too many logins have failed within a minute."""
        now_s = self._clock_s()
        self._failures_s = [at_s for at_s in self._failures_s if now_s - at_s < _FAILURES_S]
        return len(self._failures_s) >= MAX_FAILURES

    def is_right(self, name: str, password: str) -> bool:
        """Return whether a password is that of a name; a failure is counted."""
        if self.is_locked():
            return False
        wanted = self._logins.get(name, b"")
        # The comparison also runs for a name that does not exist: the time tells nothing.
        is_right = hmac.compare_digest(_digest(password), wanted or bytes(32)) and bool(wanted)
        if not is_right:
            self._failures_s.append(self._clock_s())
        return is_right

    def basic_user(self, header: str) -> str | None:
        """Return the user of an `Authorization: Basic` header; None if it is wrong."""
        kind, _, encoded = header.partition(" ")
        if kind.lower() != "basic":
            return None
        try:
            name, _, password = base64.b64decode(encoded, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return None
        return name if self.is_right(name, password) else None

    def csrf_token(self, session: Session) -> str:
        """Return the token that each form of a session carries."""
        return hmac.new(self._secret, session.session_id.encode(), hashlib.sha256).hexdigest()

    def is_own_form(self, session: Session, token: str) -> bool:
        """Return whether a form is from a page of this session."""
        return hmac.compare_digest(self.csrf_token(session).encode(), token.encode())


def _digest(password: str) -> bytes:
    return hashlib.sha256(password.encode()).digest()
