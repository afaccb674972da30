"""A listener with SASL on the test's event loop, without a node behind it."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from spindle.protocol.api import ApiKey
from spindle.protocol.messages.api_versions import ApiVersionsResponse
from spindle.protocol.messages.heartbeat import HeartbeatResponse
from spindle.protocol.messages.metadata import MetadataResponse
from spindle.runtime.metrics.requests import RequestMetrics
from spindle.runtime.network.listener import Listener
from spindle.runtime.network.request_limits import RequestLimits
from spindle.runtime.network.sasl_state import SaslRules
from spindle.runtime.network.server import RequestServer
from spindle.runtime.network.unauthenticated import UnauthenticatedConnections
from spindle.security.scram import (
    ScramCredential,
    ScramMechanism,
    salted_password,
    server_key,
    stored_key,
)
from spindle.security.secret import Secret
from spindle.security.server.plain import plain_server_exchange
from spindle.security.server.scram import ScramServer
from spindle.serving.context import RequestContext
from spindle.serving.handlers.sasl import sasl_authenticate, sasl_handshake

PASSWORD = "wonder-0815"
USERS = {"alice": Secret(PASSWORD), "bob": Secret("builder-4711")}
SCRAM = ScramMechanism.SCRAM_SHA_512


def _credential() -> ScramCredential:
    salted = salted_password(SCRAM, PASSWORD, b"salt", 4096)
    return ScramCredential(b"salt", stored_key(SCRAM, salted), server_key(SCRAM, salted), 4096)


RULES = SaslRules(
    mechanisms={
        "PLAIN": lambda: plain_server_exchange(USERS),
        SCRAM.text: ScramServer(SCRAM, {"alice": _credential()}.get).exchange,
    },
    max_reauth_ms={},
    max_receive_bytes=100_000,
    failure_delay_s=0.0,
    now_ms=lambda: 0,
    unauthenticated=UnauthenticatedConnections(),
)


@dataclass
class Served:
    """A listener, its counters, and the requests that its handlers have seen.

    Attributes:
        principals: of the requests that got to a handler of the broker, in order.
    """

    server: RequestServer
    port: int
    principals: list[str]
    metrics: RequestMetrics

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)


@asynccontextmanager
async def sasl_listener(**changes: Any) -> AsyncIterator[Served]:
    """Serve Metadata and Heartbeat to clients that authenticate; yield the listener."""
    principals: list[str] = []

    def metadata(context: RequestContext, request: Any) -> MetadataResponse:
        principals.append(context.principal)
        return MetadataResponse()

    def heartbeat(context: RequestContext, request: Any) -> HeartbeatResponse:
        principals.append(context.principal)
        return HeartbeatResponse()

    listener = Listener(
        "LOGIN",
        "127.0.0.1",
        0,
        {
            ApiKey.API_VERSIONS: lambda context, request: ApiVersionsResponse(),
            ApiKey.SASL_HANDSHAKE: sasl_handshake,
            ApiKey.SASL_AUTHENTICATE: sasl_authenticate,
            ApiKey.METADATA: metadata,
            ApiKey.HEARTBEAT: heartbeat,
        },
    )
    listener.sasl = replace(RULES, **changes)
    limits = RequestLimits(
        max_request_bytes=10_000_000,
        max_connections=100,
        max_connections_per_ip=100,
        per_ip_overrides={},
        max_idle_ms=600_000,
        max_held_bytes=-1,
        max_descriptors=100,
    )
    metrics = RequestMetrics()
    server = RequestServer(listener, limits=limits, metrics=metrics)
    listener.socket = socket.create_server(("127.0.0.1", 0))
    await server.open()
    try:
        yield Served(server, listener.socket.getsockname()[1], principals, metrics)
    finally:
        await server.close()
