"""The SASL state of one connection: its permitted requests and its principal (KIP-43, KIP-368).

A connection may send ApiVersions once, then SaslHandshake, then the messages of the mechanism: as
SaslAuthenticate requests after SaslHandshake version 1, as frames without headers after version 0.
The module does no I/O and reads no clock.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import Any, Final, NamedTuple, cast

from spindle.common.errors import ErrorCode, ProtocolViolation
from spindle.common.ports import Bytes
from spindle.common.text import quoted
from spindle.protocol.api import APIS, ApiKey, request_class, response_class
from spindle.protocol.codec import TooManyElements, decode
from spindle.protocol.framing import SIZE, RequestHeader, read_request_header
from spindle.protocol.message import Message
from spindle.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from spindle.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from spindle.runtime.network.unauthenticated import UnauthenticatedConnections
from spindle.security.server.mechanism import (
    LoggedIn,
    LoginRefused,
    SaslMechanism,
    ServerExchange,
)
from spindle.serving.fetch.sendfile_response import frame_of

_MAX_ELEMENTS: Final = 16
_MIN_PAUSE_S: Final = 1.0
"""Time between the starts of two re-authentications, as in Kafka."""


@dataclass(frozen=True, slots=True)
class SaslRules:
    """The SASL settings of a listener.

    Attributes:
        mechanisms: the enabled mechanisms, by name.
        max_reauth_ms: maximum session by mechanism (`connections.max.reauth.ms`); 0 for no limit.
        max_receive_bytes: `sasl.server.max.receive.size`.
        failure_delay_s: `connection.failed.authentication.delay.ms`.
        now_ms: Unix time, for credentials that expire.
        unauthenticated: the node's connections without a login, whose memory is limited.
    """

    mechanisms: Mapping[str, SaslMechanism]
    max_reauth_ms: Mapping[str, int]
    max_receive_bytes: int
    failure_delay_s: float
    now_ms: Callable[[], int]
    unauthenticated: UnauthenticatedConnections


class LoginFailed(Exception):
    """The connection must end. The text is for the log of this node.

    Attributes:
        answer: the response, sent after the delay; empty for none.
        user: the name that the client sent, "" if there is none.
        mechanism: "" if none was chosen.
    """

    def __init__(
        self, reason: str, answer: list[Bytes], *, user: str = "", mechanism: str = ""
    ) -> None:
        super().__init__(reason)
        self.answer = answer
        self.user = user
        self.mechanism = mechanism


class SessionExpired(Exception):
    """A request came after the end of the session."""


class SaslSession(NamedTuple):
    """The session of a connection that has authenticated.

    Attributes:
        lifetime_ms: the client must authenticate again within this time; 0 for no limit.
        expires_s: the end by the monotonic clock of `SaslState.respond`; infinite without an end.
    """

    login: LoggedIn
    mechanism: str
    lifetime_ms: int
    expires_s: float


class _State(Enum):
    VERSIONS_OR_HANDSHAKE = 0
    HANDSHAKE = 1
    EXCHANGE = 2
    COMPLETE = 3


class SaslState:
    """The state of one connection.

    Attributes:
        session: the newest session; None before the first authentication is complete.
    """

    def __init__(self, rules: SaslRules) -> None:
        self.rules = rules
        self.session: SaslSession | None = None
        self._state = _State.VERSIONS_OR_HANDSHAKE
        self._exchange: ServerExchange | None = None
        self._mechanism = ""
        self._has_headers = False
        self._began_s = -_MIN_PAUSE_S

    @property
    def is_complete(self) -> bool:
        """True if other requests are served."""
        return self._state is _State.COMPLETE

    @property
    def is_final(self) -> bool:
        """True if the session does not end, so that there is no re-authentication."""
        return self.is_complete and self.session is not None and self.session.expires_s == inf

    def respond(self, frame: Bytes, now_s: float) -> list[Bytes] | None:
        """Return the response to a request of the login, or None for an ordinary request.

        Args:
            now_s: the time of a monotonic clock.

        Raises:
            LoginFailed: the connection must end after a delay.
            SessionExpired, ProtocolViolation: it must end at once.
        """
        if self._state is _State.COMPLETE:
            return self._respond_to_session(frame, now_s)
        if self._state is not _State.EXCHANGE:
            return self._begin(frame)
        if self._has_headers:
            return self._authenticate(frame, now_s)
        try:
            message = self._advance(bytes(frame), now_s)
        except LoginRefused as refusal:
            raise self._failed(refusal, []) from None
        return [SIZE.pack(len(message)), message]

    def _respond_to_session(self, frame: Bytes, now_s: float) -> list[Bytes] | None:
        assert self.session is not None
        header = read_request_header(frame)
        is_handshake = header.api_key == ApiKey.SASL_HANDSHAKE
        if is_handshake and now_s - self._began_s >= _MIN_PAUSE_S:
            self._began_s = now_s
            return self._handshake(header, frame)
        if now_s > self.session.expires_s:
            raise SessionExpired
        return None

    def _begin(self, frame: Bytes) -> list[Bytes] | None:
        header = _header(frame)
        if header.api_key == ApiKey.SASL_HANDSHAKE:
            return self._handshake(header, frame)
        if header.api_key != ApiKey.API_VERSIONS:
            raise LoginFailed(_unexpected(header, "handshake"), [])
        if self._state is _State.HANDSHAKE:
            raise LoginFailed("ApiVersions came twice during SASL handshake.", [])
        if header.api_version <= APIS[ApiKey.API_VERSIONS].last_version:
            self._state = _State.HANDSHAKE
        return None

    def _handshake(self, header: RequestHeader, frame: Bytes) -> list[Bytes]:
        name = cast(SaslHandshakeRequest, _decoded(header, frame)).mechanism
        mechanism = self.rules.mechanisms.get(name)
        response = SaslHandshakeResponse(mechanisms=list(self.rules.mechanisms))
        if mechanism is None:
            response.error_code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
            raise LoginFailed(
                f"Unsupported SASL mechanism {quoted(name)}", _answer(header, response)
            )
        self._state = _State.EXCHANGE
        self._has_headers = header.api_version > 0
        self._mechanism = name
        self._exchange = mechanism()
        next(self._exchange)
        return _answer(header, response)

    def _authenticate(self, frame: Bytes, now_s: float) -> list[Bytes]:
        header = _header(frame)
        if header.api_key != ApiKey.SASL_AUTHENTICATE:
            text = _unexpected(header, "authentication")
            answer = _illegal_state(header, text)
            raise LoginFailed(text, answer, mechanism=self._mechanism)
        request = cast(SaslAuthenticateRequest, _decoded(header, frame))
        try:
            message = self._advance(bytes(request.auth_bytes), now_s)
        except LoginRefused as refusal:
            response = SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED,
                error_message=refusal.client_text or self._general_text(),
            )
            raise self._failed(refusal, _answer(header, response)) from None
        session = self.session if self.is_complete else None
        response = SaslAuthenticateResponse(
            auth_bytes=message,
            session_lifetime_ms=session.lifetime_ms if session is not None else 0,
        )
        return _answer(header, response)

    def _advance(self, message: bytes, now_s: float) -> bytes:
        """Return the mechanism's response to a message; start the session with the last one.

        Raises:
            LoginRefused: the client did not prove its identity, or its principal has changed.
        """
        before = self.session
        if before is not None and before.mechanism != self._mechanism:
            text = (
                f"SASL mechanism '{self._mechanism}' requested by client is not supported for "
                f"re-authentication of mechanism '{before.mechanism}'"
            )
            raise LoginRefused(text, user=before.login.user, client_text=text)
        assert self._exchange is not None
        try:
            return self._exchange.send(message)
        except StopIteration as end:
            login: LoggedIn = end.value
        if before is not None and before.login.user != login.user:
            text = (
                "Cannot change principals during re-authentication from "
                f"User.{before.login.user}: User.{login.user}"
            )
            raise LoginRefused(text, user=login.user, client_text=text)
        self.session = self._new_session(login, now_s)
        self._exchange = None
        self._state = _State.COMPLETE
        return login.answer

    def _new_session(self, login: LoggedIn, now_s: float) -> SaslSession:
        limits_ms = []
        if login.expires_at_ms is not None:
            limits_ms.append(max(login.expires_at_ms - self.rules.now_ms(), 0))
        max_reauth_ms = self.rules.max_reauth_ms.get(self._mechanism, 0)
        if max_reauth_ms > 0:
            limits_ms.append(max_reauth_ms)
        lifetime_ms = min(limits_ms, default=0)
        expires_s = now_s + lifetime_ms / 1000 if limits_ms else inf
        return SaslSession(login, self._mechanism, lifetime_ms, expires_s)

    def _general_text(self) -> str:
        what = "authentication" if self.session is None else "re-authentication"
        return (
            f"Authentication failed during {what} due to invalid credentials with SASL mechanism "
            f"{self._mechanism}"
        )

    def _failed(self, refusal: LoginRefused, answer: list[Bytes]) -> LoginFailed:
        return LoginFailed(str(refusal), answer, user=refusal.user, mechanism=self._mechanism)


def _header(frame: Bytes) -> RequestHeader:
    try:
        return read_request_header(frame)
    except ProtocolViolation as violation:
        raise LoginFailed(f"not a request of Kafka: {violation}", []) from None


def _decoded(header: RequestHeader, frame: Bytes) -> Message:
    api = APIS[header.api_key]
    if not api.first_version <= header.api_version <= api.last_version:
        text = f"{api.name} version {header.api_version} is not supported"
        raise LoginFailed(text, [])
    try:
        cls = request_class(header.api_key)
        return decode(cls, header.api_version, frame, header.body, _MAX_ELEMENTS)[0]
    except (ProtocolViolation, TooManyElements) as error:
        raise LoginFailed(f"{api.name} is malformed: {error}", []) from None


def _unexpected(header: RequestHeader, phase: str) -> str:
    name = APIS[header.api_key].name.upper()
    return f"Unexpected Kafka request of type {name} during SASL {phase}."


def _illegal_state(header: RequestHeader, text: str) -> list[Bytes]:
    """Return a response with ILLEGAL_SASL_STATE; empty if the response has no error code."""
    api = APIS[header.api_key]
    if not api.first_version <= header.api_version <= api.last_version:
        return []
    response: Any = response_class(header.api_key)()
    fields = {field.name: field for field in response.FIELDS}
    code = fields.get("error_code")
    if code is None or not code.first <= header.api_version <= code.last:
        return []
    response.error_code = ErrorCode.ILLEGAL_SASL_STATE
    if "error_message" in fields:
        response.error_message = text
    return _answer(header, response)


def _answer(header: RequestHeader, response: Message) -> list[Bytes]:
    return frame_of(response, header.api_key, header.api_version, header.correlation_id)
