"""A request for an API that the listener does not serve: the log names the client."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from spindle.common.errors import ProtocolViolation
from spindle.protocol.api import ApiKey
from spindle.protocol.framing import request_prefix
from spindle.runtime.metrics.requests import RequestMetrics
from spindle.runtime.network.listener import Listener
from spindle.runtime.network.request_limits import RequestLimits
from spindle.runtime.network.server import RequestServer

LIMITS = RequestLimits(
    max_request_bytes=10_000_000,
    max_connections=100,
    max_connections_per_ip=100,
    per_ip_overrides={},
    max_idle_ms=1000,
    max_held_bytes=-1,
    max_descriptors=100,
)


async def test_the_refusal_of_an_unserved_api_names_api_listener_and_client_id() -> None:
    listener = Listener("PLAINTEXT", "localhost", 0, {})
    server = RequestServer(listener, limits=LIMITS, metrics=RequestMetrics())
    connection = cast(Any, SimpleNamespace(listener="PLAINTEXT", sasl=None))
    frame = request_prefix(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, 7, "orders")
    with pytest.raises(
        ProtocolViolation,
        match=r"ConsumerGroupHeartbeat is not served on listener PLAINTEXT "
        r"\(client id 'orders'\)",
    ):
        server.dispatch(connection, frame)
