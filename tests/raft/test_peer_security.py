"""Connections to nodes whose listeners have TLS and logins, over real sockets."""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

import pytest
from certificates import Certified, certified, self_signed
from quorum_node import CLUSTER_ID, key
from quorum_wire import PeerServer

from spindle.client.security import login
from spindle.client.security.login_source import LoginSource
from spindle.client.security.settings import PlainLogin
from spindle.common.ids import OffsetAndEpoch
from spindle.common.security_protocol import SecurityProtocol
from spindle.protocol.message import Message
from spindle.protocol.messages.fetch import FetchResponse
from spindle.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from spindle.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from spindle.raft import requests
from spindle.raft.ready import Destination
from spindle.runtime.peers.links import PeerLinks
from spindle.runtime.peers.pool import PeerPool
from spindle.runtime.peers.port import PeerUnavailable
from spindle.runtime.peers.security import Credentials, PeerSecurity
from spindle.security.secret import Secret
from spindle.security.tls_context import client_context
from spindle.security.tls_settings import TlsSettings, tls_settings

HERE = ("127.0.0.1",)
PASSWORD = "the-secret-of-node-1"
LOGIN = LoginSource(PlainLogin("node-1", Secret(PASSWORD)))


def fetch() -> Message:
    return requests.fetch_request(CLUSTER_ID, 1, key(1), OffsetAndEpoch(0, 0), -1, 1000)


@cache
def of_server(*hosts: str) -> Certified:
    return certified("server", hosts=hosts)


@cache
def of_client() -> Certified:
    return certified("client")


def server_context(folder: Path, own: Certified, *, wants_client: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own.write(folder, "server"))
    if wants_client:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=own.authority_pem)
    return context


def tls(**further: str) -> TlsSettings:
    """Return settings that trust the test authority; in names, `_` stands for a dot."""
    return tls_settings(
        {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": of_client().authority_pem,
            **{name.replace("_", "."): value for name, value in further.items()},
        }
    )


def over_tls(settings: TlsSettings) -> PeerSecurity:
    return PeerSecurity(
        "CONTROLLER", SecurityProtocol.SSL, lambda: Credentials(client_context(settings))
    )


def with_login() -> PeerSecurity:
    return PeerSecurity(
        "CONTROLLER", SecurityProtocol.SASL_PLAINTEXT, lambda: Credentials(logins=LOGIN)
    )


class LoginServer:
    """Answers to a login, then fetches.

    Attributes:
        refuses: refuse the logins that come.
        lifetime_ms: that of a session.
        seen: the kinds of the requests, in order.
    """

    def __init__(self) -> None:
        self.refuses = False
        self.lifetime_ms = 0
        self.seen: list[str] = []

    def __call__(self, request: Message, version: int) -> Message | None:
        self.seen.append(type(request).__name__.removesuffix("Request"))
        match request:
            case SaslHandshakeRequest():
                assert version == 1
                assert request.mechanism == "PLAIN"
                return SaslHandshakeResponse(mechanisms=["PLAIN"])
            case SaslAuthenticateRequest():
                assert bytes(request.auth_bytes) == f"\0node-1\0{PASSWORD}".encode()
                if self.refuses:
                    return SaslAuthenticateResponse(error_code=58, error_message="wrong password")
                return SaslAuthenticateResponse(session_lifetime_ms=self.lifetime_ms)
        return FetchResponse()


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


async def test_a_peer_is_asked_over_tls_and_shown_the_certificate_it_wants(tmp_path: Path) -> None:
    own = of_client()
    settings = tls(
        ssl_keystore_type="PEM",
        ssl_keystore_key=own.key_pem(),
        ssl_keystore_certificate_chain=own.certificate_pem,
    )

    context = server_context(tmp_path, of_server("127.0.0.1"), wants_client=True)
    server = PeerServer(lambda request, version: FetchResponse(error_code=7), context)
    destination = await server.start()
    peers = PeerLinks("raft-client-1", 5, over_tls(settings))
    for _ in range(2):
        assert await peers.request(destination, fetch()) == FetchResponse(error_code=7)
    assert server.connections == 1
    peers.close()
    await server.stop()


@pytest.mark.parametrize(
    ("shown", "reason"),
    [
        (of_server("other.example"), "its certificate is for another host"),
        (certified("old", hosts=HERE, days=-1), "its certificate, or that of its CA, has expired"),
        (self_signed("self", hosts=HERE), "its certificate is not trusted"),
        (certified("stray", hosts=HERE, authority="other"), "its certificate is not trusted"),
    ],
    ids=["other host", "expired", "self-signed", "other authority"],
)
async def test_a_refused_certificate_is_logged_once_with_peer_and_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, shown: Certified, reason: str
) -> None:
    with caplog.at_level(logging.INFO, "spindle"):
        server = PeerServer(
            lambda request, version: FetchResponse(), server_context(tmp_path, shown)
        )
        destination = await server.start()
        asyncio.get_running_loop().set_exception_handler(lambda _, __: None)
        peers = PeerLinks("raft-client-1", 5, over_tls(tls()))
        for _ in range(3):
            with pytest.raises(PeerUnavailable, match=reason):
                await peers.request(destination, fetch())
        peers.close()
        await server.stop()
        port = destination.port
    (line,) = lines(caplog)
    assert line.startswith(f"node 2 at 127.0.0.1:{port}, listener CONTROLLER (SSL): the peer: ")
    assert reason in line


async def test_a_host_name_is_not_compared_if_the_settings_say_so(tmp_path: Path) -> None:
    server = PeerServer(
        lambda request, version: FetchResponse(),
        server_context(tmp_path, of_server("other.example")),
    )
    destination = await server.start()
    peers = PeerPool("node-1", 5, over_tls(tls(ssl_endpoint_identification_algorithm="")))
    assert isinstance(await peers.request(destination, fetch()), FetchResponse)
    peers.close()
    await server.stop()


async def test_a_peer_without_tls_is_named_as_such(caplog: pytest.LogCaptureFixture) -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.close()

    listener = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    destination = Destination(2, "127.0.0.1", listener.sockets[0].getsockname()[1])
    peers = PeerLinks("raft-client-1", 5, over_tls(tls()))
    with pytest.raises(PeerUnavailable, match="is its listener one for SSL"):
        await peers.request(destination, fetch())
    peers.close()
    listener.close()
    assert "closed the connection" in lines(caplog)[0]


@pytest.mark.parametrize("kind", [PeerLinks, PeerPool])
async def test_a_node_logs_in_before_its_first_request_and_then_asks_for_versions_again(
    kind: Callable[..., PeerLinks | PeerPool],
) -> None:
    answers = LoginServer()

    server = PeerServer(answers)
    destination = await server.start()
    peers = kind("node-1", 5, with_login())
    for _ in range(2):
        assert isinstance(await peers.request(destination, fetch()), FetchResponse)
    assert (server.connections, server.negotiations) == (1, 2)
    peers.close()
    await server.stop()
    assert answers.seen == ["SaslHandshake", "SaslAuthenticate", "Fetch", "Fetch"]


async def test_a_refused_login_is_logged_once_without_the_password_and_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    answers = LoginServer()
    answers.refuses = True

    with caplog.at_level(logging.DEBUG, "spindle"):
        server = PeerServer(answers)
        destination = await server.start()
        security = with_login()
        pool, links = PeerPool("node-1", 5, security), PeerLinks("fetcher", 5, security)
        for peers in (pool, links, pool):
            with pytest.raises(PeerUnavailable, match="wrong password"):
                await peers.request(destination, fetch())
        answers.refuses = False
        assert isinstance(await links.request(destination, fetch()), FetchResponse)
        pool.close()
        links.close()
        await server.stop()
    refused, accepted = lines(caplog)
    for part in ("node 2 at", "listener CONTROLLER", "(SASL_PLAINTEXT)", "PLAIN", "wrong password"):
        assert part in refused
    assert "accepts this node again" in accepted
    assert PASSWORD not in caplog.text


@asynccontextmanager
async def renewing(
    kind: Callable[..., PeerLinks | PeerPool],
) -> AsyncIterator[tuple[LoginServer, PeerServer, Callable[[], Awaitable[Message]]]]:
    """Yield a server, and a request to it on a connection whose session is due for renewal."""
    answers = LoginServer()
    answers.lifetime_ms = 60_000
    server = PeerServer(answers)
    destination = await server.start()
    peers = kind("node-1", 5, with_login())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(login, "_RENEWAL_SHARE", (0.0, 0.0))
        await peers.request(destination, fetch())
        yield answers, server, lambda: peers.request(destination, fetch())
    peers.close()
    await server.stop()


@pytest.mark.parametrize("kind", [PeerLinks, PeerPool])
async def test_a_session_that_ends_soon_is_renewed_on_its_connection(
    kind: Callable[..., PeerLinks | PeerPool],
) -> None:
    async with renewing(kind) as (answers, server, ask):
        answers.seen.clear()
        await ask()
        assert server.connections == 1
    assert answers.seen[-3:] == ["SaslHandshake", "SaslAuthenticate", "Fetch"]


@pytest.mark.parametrize("kind", [PeerLinks, PeerPool])
async def test_a_refused_renewal_ends_the_connection(
    kind: Callable[..., PeerLinks | PeerPool],
) -> None:
    async with renewing(kind) as (answers, server, ask):
        answers.refuses = True
        with pytest.raises(PeerUnavailable, match="wrong password"):
            await ask()
        answers.refuses = False
        assert isinstance(await ask(), FetchResponse)
        assert server.connections == 2


async def test_a_request_that_is_given_up_during_a_renewal_does_not_disturb_the_next_one() -> None:
    async with renewing(PeerLinks) as (_, server, ask):
        given_up = asyncio.ensure_future(ask())
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.sleep(0)
        assert isinstance(await ask(), FetchResponse)
        assert server.connections == 2


async def test_a_listener_without_logins_is_named_as_such() -> None:
    server = PeerServer(lambda request, version: SaslHandshakeResponse(error_code=34))
    destination = await server.start()
    peers = PeerPool("node-1", 5, with_login())
    with pytest.raises(PeerUnavailable, match="this listener does not use SASL"):
        await peers.request(destination, fetch())
    peers.close()
    await server.stop()
