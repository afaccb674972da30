"""The request server of one listener: limits, dispatch to handlers, responses.

A handler is a function `(context, request) -> response`, or one that returns an awaitable of the
response. `None` means no response (produce with acks=0). A listener serves the APIs in its handler
table; it neither advertises nor accepts any other API.
"""

import asyncio
import logging
from math import inf
from time import perf_counter
from typing import Final

from spindle.common.errors import ErrorCode, ProtocolViolation
from spindle.common.log_throttle import LogThrottle
from spindle.common.ports import Bytes
from spindle.common.text import quoted
from spindle.protocol.api import API_VERSIONS, APIS, FETCH, PRODUCE
from spindle.protocol.codec import TooManyElements, encode_parts
from spindle.protocol.framing import RequestHeader, read_request_header, response_prefix
from spindle.protocol.message import Message
from spindle.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from spindle.protocol.requests import read_request
from spindle.runtime.metrics.requests import RequestMetrics
from spindle.runtime.network.auth_log import LoginLog
from spindle.runtime.network.connection import Connection, ConnectionLanes
from spindle.runtime.network.large_requests import INLINE_ELEMENTS, LargeRequests, max_elements
from spindle.runtime.network.listener import Listener
from spindle.runtime.network.request_limits import RequestLimits
from spindle.runtime.network.response_writer import Answer, Deferred
from spindle.runtime.network.sasl_state import LoginFailed, SaslState, SessionExpired
from spindle.serving.context import RequestContext, Response
from spindle.serving.fetch.sendfile_response import PartialResponse, frame_of
from spindle.serving.quotas.enforcement import ClientQuotas, set_throttle_time, throttle_time

log = logging.getLogger(__name__)

_IDLE_SWEEP_S: Final = 30.0
_LAST_ANSWERS_S: Final = 0.1
"""Time that a closing server gives its peers to read their responses."""
_LOGIN_S: Final = 60.0
"""Time limit of a connection's first authentication."""
_BACKLOG: Final = 512


class RequestServer:
    """Serves one listener. `limits` may be shared with other listeners."""

    def __init__(
        self,
        listener: Listener,
        *,
        limits: RequestLimits,
        metrics: RequestMetrics,
        quotas: ClientQuotas | None = None,
    ) -> None:
        self.limits = limits
        self.lanes: ConnectionLanes | None = None
        self._listener = listener
        self._max_idle_s = max(limits.max_idle_ms, 0) / 1000
        self._large = LargeRequests()
        self._metrics = metrics
        self._quotas = quotas or ClientQuotas(1, 1000, lambda: 0)
        self._quotas.on_change(self._unmute_all)
        self._times = {key: metrics.of(APIS[key].name, listener.name) for key in listener.handlers}
        self._connections: dict[Connection, None] = {}
        self._last_gone: asyncio.Future[None] | None = None
        self._sweep: asyncio.TimerHandle | None = None
        self._server: asyncio.Server | None = None
        self._loop = asyncio.get_running_loop()
        self._violations = LogThrottle(lambda: int(self._loop.time() * 1000))
        self._logins = LoginLog(listener.name, metrics, self._loop.time)

    # -- life

    async def open(self) -> None:
        """Accept connections, and serve those that have arrived since `bind`."""
        listener = self._listener
        assert listener.socket is not None
        self._server = await self._loop.create_server(
            self._accept, sock=listener.socket, backlog=_BACKLOG
        )
        self._schedule_sweep()

    def _accept(self) -> asyncio.BufferedProtocol:
        listener = self._listener
        sasl = SaslState(listener.sasl) if listener.sasl is not None else None
        connection = Connection(self, listener.name, sasl)
        tls = listener.security.tls
        return connection if tls is None else tls.secured(connection)

    async def close(self) -> None:
        """Stop accepting and drop every connection."""
        if self._sweep is not None:
            self._sweep.cancel()
        if self._server is not None:
            self._server.close()
        elif self._listener.socket is not None:
            self._listener.socket.close()
        for connection in list(self._connections):
            connection.close()
        if self._connections:
            self._last_gone = self._loop.create_future()
            await asyncio.wait((self._last_gone,), timeout=_LAST_ANSWERS_S)
        for connection in list(self._connections):
            connection.abort()
        self._large.close()

    def connection_opened(self, connection: Connection) -> bool:
        refusal = self.limits.admit(connection.client_address)
        if refusal is not None:
            log.warning("refusing %s: %s", connection.client_address, refusal)
            self._metrics.connections_refused += 1
            return False
        self._connections[connection] = None
        self._metrics.connections += 1
        self._metrics.connections_opened += 1
        if self._quotas.is_active:
            self._limit_rate(connection)
        return True

    def _limit_rate(self, connection: Connection) -> None:
        """Keep a connection above the rate open and unread for a while, then close it (KIP-612)."""
        wait_s = self._quotas.charge_connection(connection.client_address) / 1000
        if wait_s:
            self._metrics.connections_refused += 1
            connection.mute(2 * wait_s)
            self._loop.call_later(wait_s, connection.abort)

    def connection_closed(self, connection: Connection) -> None:
        if connection in self._connections:
            del self._connections[connection]
            self._metrics.connections -= 1
            self.limits.leave(connection.client_address)
            if not self._connections and self._last_gone is not None:
                self._last_gone.set_result(None)
                self._last_gone = None

    def _schedule_sweep(self) -> None:
        if self._max_idle_s:
            delay = min(_IDLE_SWEEP_S, self._max_idle_s)
            self._sweep = self._loop.call_later(delay, self._close_idle)
        elif self._listener.sasl is not None:
            self._sweep = self._loop.call_later(_IDLE_SWEEP_S, self._close_idle)

    def _close_idle(self) -> None:
        now_s = self._loop.time()
        oldest = now_s - self._max_idle_s if self._max_idle_s else -inf
        for connection in list(self._connections):
            sasl = connection.sasl
            if sasl is not None and sasl.session is None and now_s - connection.opened_s > _LOGIN_S:
                reason = f"not complete after {_LOGIN_S:.0f} s"
                self._logins.failed(connection.client_address, reason, is_again=False)
                connection.abort()
            elif connection.is_idle_since(oldest):
                # Abort it, because a peer that does not read would keep it open forever.
                connection.abort()
        self._schedule_sweep()

    def bytes_received(self, count: int, /) -> None:
        self._metrics.bytes_in += count

    def bytes_sent(self, count: int, /) -> None:
        self._metrics.bytes_out += count

    # -- quotas

    def _throttle(
        self, connection: Connection, context: RequestContext, frame_bytes: int, response: Response
    ) -> None:
        """Respond at once with the throttle time, and mute the connection meanwhile (KIP-219)."""
        if context.api_key == PRODUCE:
            is_answered = response is not None
            wait_ms = self._quotas.charge_produce(context, frame_bytes, is_answered=is_answered)
        else:
            # The handler has charged fetches, the controller has charged created partitions.
            wait_ms = throttle_time(response)
            if context.api_key != FETCH:
                wait_ms = max(wait_ms, self._quotas.charge_request(context))
        if wait_ms:
            set_throttle_time(response, wait_ms)
            self._metrics.connections_muted += 1
            connection.mute(wait_ms / 1000)

    def _throttled(
        self, connection: Connection, context: RequestContext, frame_bytes: int, response: Response
    ) -> Answer:
        """Return the encoded response with its throttle time, which counts the encoding."""
        started_s = perf_counter()
        self._throttle(connection, context, frame_bytes, response)
        frame = answer(context, response)
        self._quotas.charge_time(context, perf_counter() - started_s)
        return frame

    def _unmute_all(self) -> None:
        for connection in list(self._connections):
            connection.unmute()

    # -- authentication

    def _authenticate(self, connection: Connection, sasl: SaslState, frame: Bytes) -> Answer:
        """Handle a request of an authentication.

        Returns:
            The response; empty if it comes later; None for an ordinary request.
        """
        previous = sasl.session
        try:
            answer = sasl.respond(frame, self._loop.time())
        except LoginFailed as failure:
            self._end_failed(connection, sasl, failure)
            return []
        except SessionExpired:
            self._metrics.sessions_expired += 1
            connection.close()
            return []
        session = sasl.session
        if session is not None and session is not previous:
            address = connection.client_address
            self._logins.succeeded(address, session, is_again=previous is not None)
            connection.authenticated(session.login)
            if sasl.is_final:
                connection.sasl = None
        return answer

    def _end_failed(self, connection: Connection, sasl: SaslState, failure: LoginFailed) -> None:
        self._logins.failed(
            connection.client_address,
            str(failure),
            user=failure.user,
            mechanism=failure.mechanism,
            is_again=sasl.session is not None,
        )
        connection.refuse(sasl.rules.failure_delay_s, failure.answer)

    def on_protocol_violation(self, connection: Connection, violation: ProtocolViolation) -> None:
        """Close a connection after a malformed request."""
        sasl = connection.sasl
        if sasl is not None and sasl.session is None:
            self._end_failed(connection, sasl, LoginFailed(str(violation), []))
        else:
            address = connection.client_address
            if self._violations.allow((address, str(violation))):
                log.warning("closing the connection of %s: %s", address, violation)
            connection.close()

    # -- requests

    def dispatch(self, connection: Connection, frame: Bytes) -> Answer | Deferred:
        if connection.sasl is not None:
            answered = self._authenticate(connection, connection.sasl, frame)
            if answered is not None:
                return answered
        lanes = self.lanes
        if lanes is not None and lanes.has_progress:
            lanes.take_progress()
        header = read_request_header(frame)
        api_key, version = header.api_key, header.api_version
        handler = self._listener.handlers.get(api_key)
        api = APIS[api_key]
        if handler is None:
            raise ProtocolViolation(
                f"{api.message_name} is not served on listener {connection.listener} "
                f"(client id {quoted(header.client_id or '')})"
            )
        if not api.first_version <= version <= api.last_version:
            if api_key == API_VERSIONS:
                return self._unknown_api_versions(header.correlation_id)
            raise ProtocolViolation(
                f"{api.message_name} version {version} is not supported, "
                f"versions {api.first_version} to {api.last_version} are"
            )
        started_s = perf_counter()
        try:
            request = read_request(api_key, version, frame, header.body, INLINE_ELEMENTS)
        except TooManyElements:
            context = self._context(connection, header)
            # No other request is started meanwhile, so that the order of the connection's appends
            # stays.
            return Deferred(self._serve_large(connection, context, frame, header.body), _same, True)
        if api_key == API_VERSIONS:
            assert isinstance(request, ApiVersionsRequest)
            if version >= 3:
                connection.client_software_name = request.client_software_name
                connection.client_software_version = request.client_software_version
        context = self._context(connection, header)
        quotas, frame_bytes, times = self._quotas, len(frame), self._times[api_key]
        handled = handler(context, request)
        if quotas.is_active:
            quotas.charge_time(context, perf_counter() - started_s)

        def finish(response: Response) -> Answer:
            frame: Answer
            if isinstance(response, PartialResponse):
                frame = connection.stream(response)
            elif quotas.is_active:
                frame = self._throttled(connection, context, frame_bytes, response)
            else:
                frame = answer(context, response)
            times.observe(perf_counter() - started_s)
            return frame

        if handled is None or isinstance(handled, Message):
            return finish(handled)
        return Deferred(handled, finish)

    def _context(self, connection: Connection, header: RequestHeader) -> RequestContext:
        return RequestContext(
            header.api_key,
            header.api_version,
            header.correlation_id,
            header.client_id or "",
            connection.client_address,
            connection.listener,
            connection.principal,
            connection.client_software_name,
            connection.client_software_version,
            connection,
            connection.is_token_authenticated,
            connection.when_lost,
            connection.client_port,
        )

    async def _serve_large(
        self, connection: Connection, context: RequestContext, frame: Bytes, body: int
    ) -> Answer:
        """Serve a large request beside the event loop where possible (see `large_requests`)."""
        api_key, version = context.api_key, context.api_version
        context.socket_owner = None  # the answer is encoded beside the event loop
        large = self._large
        async with large.turn(len(frame)):
            started_s = perf_counter()
            request = await large.on_thread(
                lambda: read_request(api_key, version, frame, body, max_elements(api_key))
            )
            handled = self._listener.handlers[api_key](context, request)
            if self._quotas.is_active:
                self._quotas.charge_time(context, perf_counter() - started_s)
            response: Response
            if handled is None or isinstance(handled, Message):
                response = handled
            else:
                response = await handled
            if self._quotas.is_active:
                self._throttle(connection, context, len(frame), response)
            parts = await large.on_thread(lambda: answer(context, response))
            self._times[api_key].observe(perf_counter() - started_s)
            return parts

    def _unknown_api_versions(self, correlation_id: int) -> Answer:
        """Respond with error 35 in the oldest version, so that the client can retry (KIP-511)."""
        api = APIS[API_VERSIONS]
        response = ApiVersionsResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION,
            api_keys=[
                ApiVersionsResponse.ApiVersion(
                    api_key=API_VERSIONS,
                    min_version=api.first_version,
                    max_version=api.last_version,
                )
            ],
        )
        parts = encode_parts(response, 0)
        return [response_prefix(sum(map(len, parts)), correlation_id, 0), *parts]


def _same(answer: Answer) -> Answer:
    return answer


def answer(context: RequestContext, response: Response) -> Answer:
    """Return the frame of a response, in pieces."""
    if not isinstance(response, Message):
        return None
    return frame_of(response, context.api_key, context.api_version, context.correlation_id)
