"""A connection of a SASL listener before, while and after it authenticates."""

import asyncio
import logging
import random
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from struct import pack
from typing import Any

import pytest
from node_harness import Client
from sasl_harness import PASSWORD, SCRAM, Served, sasl_listener
from waiting import until

from spindle.client.security.mechanisms import scram_exchange
from spindle.client.security.settings import ScramLogin
from spindle.common.errors import ErrorCode
from spindle.common.ports import Bytes
from spindle.protocol.api import ApiKey
from spindle.protocol.framing import request_prefix
from spindle.protocol.message import Message
from spindle.protocol.messages.api_versions import ApiVersionsRequest
from spindle.protocol.messages.heartbeat import HeartbeatRequest
from spindle.protocol.messages.metadata import MetadataRequest
from spindle.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from spindle.protocol.messages.sasl_handshake import SaslHandshakeRequest
from spindle.runtime.metrics.requests import RequestMetrics
from spindle.runtime.network import server as server_module
from spindle.runtime.network.auth_log import LoginLog
from spindle.runtime.network.sasl_state import SaslState
from spindle.runtime.network.unauthenticated import UnauthenticatedConnections
from spindle.security.secret import Secret

ALICE = b"\0alice\0" + PASSWORD.encode()
BOB = b"\0bob\0builder-4711"
INVALID = "Authentication failed: Invalid username or password"


@asynccontextmanager
async def sasl_client(**rules: Any) -> AsyncIterator[tuple[Served, Client]]:
    """Give a fresh listener and one client, which has not logged in."""
    async with sasl_listener(**rules) as served, asyncio.timeout(20):
        client = Client(*await served.connect())
        try:
            yield served, client
        finally:
            client.close()


async def authenticate(
    client: Client, token: bytes = ALICE, mechanism: str = "PLAIN", version: int = 2
) -> Any:
    shaken = await client.ask(SaslHandshakeRequest(mechanism=mechanism), 1)
    assert shaken.error_code == 0
    return await client.ask(SaslAuthenticateRequest(auth_bytes=token), version)


async def assert_closed(client: Client) -> None:
    """Check that the server sends nothing more and closes the connection."""
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)) as ended:
        await client.receive()
    assert not getattr(ended.value, "partial", b"")


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_a_client_is_its_user_after_plain(version: int) -> None:
    async with sasl_client() as (served, client):
        answer = await authenticate(client, version=version)
        assert (answer.error_code, answer.error_message) == (0, "")
        assert (answer.auth_bytes, answer.session_lifetime_ms) == (b"", 0)
        await client.ask(MetadataRequest())
    assert served.principals == ["User:alice"]
    assert served.metrics.successful_authentications == 1


async def test_a_client_is_its_user_after_scram() -> None:
    async with sasl_client() as (served, client):
        exchange = scram_exchange(ScramLogin(SCRAM, "alice", Secret(PASSWORD)), lambda: "nonce")
        first = await authenticate(client, next(exchange), SCRAM.text)
        request = SaslAuthenticateRequest(auth_bytes=exchange.send(bytes(first.auth_bytes)))
        last = await client.ask(request)
        with pytest.raises(StopIteration):
            exchange.send(bytes(last.auth_bytes))
        await client.ask(MetadataRequest())
    assert served.principals == ["User:alice"]


async def test_after_the_handshake_of_version_0_tokens_have_no_headers() -> None:
    async with sasl_client() as (served, client):
        await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 0)
        await client.send(ALICE)
        assert await client.receive() == b""
        await client.ask(MetadataRequest())
    assert served.principals == ["User:alice"]


async def test_a_wrong_token_without_header_closes_the_connection() -> None:
    async with sasl_client() as (served, client):
        await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 0)
        await client.send(b"\0alice\0wrong")
        await assert_closed(client)
    assert served.metrics.failed_authentications == 1


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_a_wrong_password_is_answered_and_the_connection_closed(version: int) -> None:
    async with sasl_client() as (served, client):
        answer = await authenticate(client, b"\0alice\0wrong", version=version)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert answer.error_message == INVALID
        await assert_closed(client)
    assert served.metrics.failed_authentications == 1


async def test_the_answer_to_a_wrong_password_waits_and_nothing_is_served_meanwhile() -> None:
    async with sasl_client(failure_delay_s=0.05) as (served, client):
        await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        request = client.ask(SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"))
        asking = asyncio.ensure_future(request)
        await asyncio.sleep(0)
        await client.send(request_prefix(ApiKey.METADATA, 0, 9, "x") + pack(">i", 0))
        assert (await asking).error_message == INVALID
        assert loop.time() - began_s >= 0.05
        await assert_closed(client)
    assert served.principals == []


async def test_failed_scram_is_answered_with_the_general_text_of_kafka() -> None:
    async with sasl_client() as (_, client):
        answer = await authenticate(client, b"n,,n=alice", SCRAM.text)
        assert answer.error_message == (
            "Authentication failed during authentication due to invalid credentials with SASL "
            "mechanism SCRAM-SHA-512"
        )


async def test_an_unknown_mechanism_is_answered_with_those_that_there_are() -> None:
    async with sasl_client() as (_, client):
        answer = await client.ask(SaslHandshakeRequest(mechanism="GSSAPI"), 1)
        assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert answer.mechanisms == ["PLAIN", "SCRAM-SHA-512"]
        await assert_closed(client)


@pytest.mark.parametrize("version", range(5))
async def test_versions_can_be_asked_for_before(version: int) -> None:
    async with sasl_client() as (served, client):
        request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
        await client.ask(request, version)
        await authenticate(client)
        await client.ask(MetadataRequest())
        await client.ask(request, version)
    assert served.principals == ["User:alice"]


async def test_a_client_whose_versions_are_too_new_asks_again() -> None:
    async with sasl_client() as (_, client):
        await client.send(request_prefix(ApiKey.API_VERSIONS, 99, 5, "x"))
        assert (await client.receive())[4:6] == pack(">h", ErrorCode.UNSUPPORTED_VERSION)
        await client.ask(ApiVersionsRequest(), 0)
        await authenticate(client)


@pytest.mark.parametrize(
    "requests",
    [
        [MetadataRequest()],
        [HeartbeatRequest()],
        [SaslAuthenticateRequest(auth_bytes=ALICE)],
        [ApiVersionsRequest(), MetadataRequest()],
        [ApiVersionsRequest(), ApiVersionsRequest()],
    ],
)
async def test_another_request_before_the_handshake_closes_the_connection(
    requests: list[Message],
) -> None:
    async with sasl_client() as (served, client):
        for request in requests[:-1]:
            await client.ask(request, 0)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await client.ask(requests[-1], 0)
    assert served.principals == []
    assert served.metrics.failed_authentications == 1


async def test_another_request_after_the_handshake_is_answered_with_its_error() -> None:
    async with sasl_client() as (served, client):
        await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        answer = await client.ask(HeartbeatRequest(), 0)
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
        await assert_closed(client)
    assert served.principals == []


async def test_a_version_without_an_error_code_is_not_answered_as_if_it_had_succeeded() -> None:
    async with sasl_client() as (served, client):
        await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await client.ask(MetadataRequest(), 9)  # the error code came with version 13
    assert served.principals == []


async def test_after_authentication_both_requests_are_out_of_place() -> None:
    async with sasl_client() as (served, client):
        await authenticate(client)
        shaken = await client.ask(SaslHandshakeRequest(mechanism="PLAIN"))
        assert shaken.error_code == ErrorCode.ILLEGAL_SASL_STATE
        answer = await client.ask(SaslAuthenticateRequest(auth_bytes=BOB))
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
        await client.ask(MetadataRequest())
    assert served.principals == ["User:alice"]


async def test_requests_that_come_with_the_last_token_are_those_of_the_user() -> None:
    async with sasl_client(max_receive_bytes=1000) as (_, client):
        await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 0)
        metadata = request_prefix(ApiKey.METADATA, 0, 9, "x") + pack(">i", 0)
        large = b"".join(
            pack(">i", len(body)) + body for body in (ALICE, metadata + bytes(200_000))
        )
        client.send_bytes(large)
        assert await client.receive() == b""
        await asyncio.gather(client.receive(), return_exceptions=True)


async def test_a_session_that_is_renewed_continues_and_an_expired_one_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch)
    async with sasl_client(max_reauth_ms={"PLAIN": 10_000}) as (served, client):
        answer = await authenticate(client)
        assert answer.session_lifetime_ms == 10_000
        clock.now_s += 9
        answer = await authenticate(client)
        assert (answer.error_code, answer.session_lifetime_ms) == (0, 10_000)
        clock.now_s += 9.9
        await client.ask(MetadataRequest())
        clock.now_s += 0.2
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await client.ask(MetadataRequest())
    assert served.principals == ["User:alice"]
    assert served.metrics.successful_reauthentications == 1
    assert served.metrics.sessions_expired == 1


async def test_an_expired_session_can_still_be_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    async with sasl_client(max_reauth_ms={"PLAIN": 10_000}) as (served, client):
        await authenticate(client)
        clock.now_s += 60
        await authenticate(client)
        await client.ask(MetadataRequest())
    assert served.principals == ["User:alice"]


@pytest.mark.parametrize(
    ("mechanism", "token", "text"),
    [
        (
            "PLAIN",
            BOB,
            "Cannot change principals during re-authentication from User.alice: User.bob",
        ),
        (
            SCRAM.text,
            b"n,,n=alice,r=x",
            "SASL mechanism 'SCRAM-SHA-512' requested by client is not supported for "
            "re-authentication of mechanism 'PLAIN'",
        ),
        ("PLAIN", b"\0alice\0wrong", INVALID),
        (
            "PLAIN",
            b"",
            "Invalid SASL/PLAIN response: expected 3 tokens, got 1",
        ),
    ],
)
async def test_a_renewal_that_fails_ends_the_connection(
    mechanism: str, token: bytes, text: str
) -> None:
    async with sasl_client(max_reauth_ms={"PLAIN": 10_000}) as (served, client):
        await authenticate(client)
        answer = await authenticate(client, token, mechanism)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert answer.error_message == text
        await assert_closed(client)
    assert served.metrics.failed_reauthentications == 1
    assert served.metrics.failed_authentications == 0


async def test_no_request_is_served_between_the_two_requests_of_a_renewal() -> None:
    async with sasl_client(max_reauth_ms={"PLAIN": 10_000}) as (served, client):
        await authenticate(client)
        await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        answer = await client.ask(HeartbeatRequest(), 0)
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
        await assert_closed(client)
    assert served.principals == []


async def test_a_second_renewal_within_a_second_is_out_of_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Clock(monkeypatch)
    async with sasl_client(max_reauth_ms={"PLAIN": 10_000}) as (_, client):
        await authenticate(client)
        await authenticate(client)
        shaken = await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert shaken.error_code == ErrorCode.ILLEGAL_SASL_STATE


class Clock:
    """The time of sessions, which a test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1000.0
        respond = SaslState.respond

        def respond_now(sasl: SaslState, frame: Bytes, _: float) -> list[Bytes] | None:
            return respond(sasl, frame, self.now_s)

        monkeypatch.setattr(SaslState, "respond", respond_now)


async def test_a_frame_above_the_limit_ends_a_connection_that_has_not_authenticated() -> None:
    async with sasl_client(max_receive_bytes=1000) as (served, client):
        client.send_bytes(pack(">i", 1001))
        await assert_closed(client)
    assert served.metrics.failed_authentications == 1


async def test_a_connection_that_does_not_authenticate_in_time_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_module, "_IDLE_SWEEP_S", 0.01)
    async with sasl_client() as (served, client):
        user = Client(*await served.connect())
        await authenticate(user)
        await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        monkeypatch.setattr(server_module, "_LOGIN_S", -1.0)
        await assert_closed(client)
        await user.ask(MetadataRequest())
        user.close()
    assert served.metrics.failed_authentications == 1
    assert served.principals == ["User:alice"]


async def test_the_log_names_user_address_and_reason_once_and_never_a_password(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    wrong = b"\0alice\0" + b"almost-" + PASSWORD.encode()

    async with sasl_client() as (served, client):
        await authenticate(client, wrong)
        for _ in range(3):
            other = Client(*await served.connect())
            await authenticate(other, wrong)
            other.close()
        other = Client(*await served.connect())
        await authenticate(other)
        other.close()
    assert served.metrics.failed_authentications == 4
    failures = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert failures == [
        "authentication of 'alice' with PLAIN on listener LOGIN from 127.0.0.1 failed: wrong "
        "password"
    ]
    assert "'alice' authenticated with PLAIN on listener LOGIN from 127.0.0.1" in caplog.messages
    assert not any(PASSWORD in message for message in caplog.messages)


def test_long_names_that_a_client_invents_need_no_memory(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = LoginLog("LOGIN", RequestMetrics(), lambda: 0.0)
    tracemalloc.start()
    try:
        for number in range(10):
            log.failed("::1", "unknown user", user=f"{number}{'x' * 500_000}", is_again=False)
        caplog.clear()
        assert tracemalloc.get_traced_memory()[0] < 500_000
    finally:
        tracemalloc.stop()


async def test_garbage_before_while_and_after_authentication_gives_no_access() -> None:
    """Random frames, whole and cut, in every state; the listener serves the next client."""
    rng = random.Random(15)

    def garbage() -> bytes:
        key = rng.choice([*range(-1, 100), ApiKey.SASL_AUTHENTICATE, ApiKey.SASL_HANDSHAKE])
        body = rng.randbytes(rng.choice((0, 1, 7, 60, 3000)))
        header = pack(">hhih", key, rng.randrange(-1, 4), 1, rng.randrange(-1, 9))
        frame = rng.choice((b"", header, header)) + body
        size = len(frame) + rng.choice((0, 0, 0, 0, -3, 5, 2**30, -(2**31)))
        return pack(">i", max(min(size, 2**31 - 1), -(2**31))) + frame

    async def attack(served: Served, stage: int) -> None:
        reader, writer = await served.connect()
        client = Client(reader, writer)
        if stage == 1:
            await client.ask(SaslHandshakeRequest(mechanism=rng.choice(["PLAIN", SCRAM.text])), 1)
        elif stage == 2:
            await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 0)
        writer.write(b"".join(garbage() for _ in range(rng.randrange(1, 6))))
        writer.write_eof()
        await reader.read()
        client.close()

    async with sasl_client() as (served, client):
        for number in range(300):
            await attack(served, number % 3)
        assert served.principals == []
        assert served.server.limits.held_bytes == 0
        await authenticate(client)
        await client.ask(MetadataRequest())
        assert served.principals == ["User:alice"]
    assert served.metrics.connections == 0
    assert served.metrics.successful_authentications == 1


async def test_strangers_with_unfinished_frames_are_closed_the_oldest_first(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each of them holds a small buffer of 64 KiB, so there is room for four."""
    unauthenticated = UnauthenticatedConnections(4 * 64 * 1024)

    async with sasl_client(unauthenticated=unauthenticated) as (served, client):
        opened = []
        for _ in range(7):
            reader, writer = await served.connect()
            writer.write(pack(">i", 30_000) + b"beginning")
            opened.append((reader, writer))
        for reader, _ in opened[:3]:
            assert await reader.read() == b""
        assert unauthenticated.held_bytes == 4 * 64 * 1024
        # A whole frame needs no room, and a client that has logged in is no stranger.
        await authenticate(client)
        client.send_bytes(pack(">i", 30_000))
        assert not any(reader.at_eof() for reader, _ in opened[3:])
        for _, writer in opened:
            writer.close()
        await until(lambda: not unauthenticated.held_bytes, pause_s=0)
    lines = [r.getMessage() for r in caplog.records if "have not logged in" in r.getMessage()]
    assert len(lines) == 1
    assert "of 127.0.0.1 on listener LOGIN" in lines[0]


async def test_the_memory_of_a_large_frame_before_the_login_counts_as_it_grows() -> None:
    unauthenticated = UnauthenticatedConnections(4 * 64 * 1024)

    async with sasl_client(unauthenticated=unauthenticated) as (_, client):
        client.send_bytes(pack(">i", 99_000) + bytes(90_000))
        await until(lambda: unauthenticated.held_bytes == 99_000, pause_s=0)
    assert unauthenticated.held_bytes == 0
