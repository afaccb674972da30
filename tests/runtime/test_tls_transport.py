"""TLS between two protocols in memory: bytes, pauses, ends, and handshakes that fail or linger."""

import asyncio
import ssl
from collections.abc import Callable
from functools import cache
from random import Random
from typing import Any

import pytest
from certificates import Certified, certified
from waiting import until

from spindle.runtime.handshakes import Handshakes, PeerRefused
from spindle.runtime.tls_transport import TlsTransport
from spindle.security.tls_context import ServerKey, client_context, server_key
from spindle.security.tls_settings import server_tls_settings, tls_settings


@cache
def broker() -> Certified:
    return certified("broker", hosts=("localhost",))


@cache
def alice() -> Certified:
    return certified("alice")


def properties(own: Certified, **further: str) -> dict[str, str]:
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": own.key_pem(),
        "ssl.keystore.certificate.chain": own.certificate_pem,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": own.authority_pem,
        **{name.replace("_", "."): value for name, value in further.items()},
    }


@cache
def server_of(items: tuple[tuple[str, str], ...]) -> ServerKey:
    return server_key(server_tls_settings(dict(items)))


@cache
def client_of(items: tuple[tuple[str, str], ...]) -> ssl.SSLContext:
    return client_context(tls_settings(dict(items)))


class Wire(asyncio.Transport):
    """One direction of a connection in memory; it delivers when the loop gets to it."""

    def __init__(self) -> None:
        super().__init__()
        self.far: TlsTransport | None = None
        self.near: TlsTransport | None = None
        self.peer: Wire | None = None
        self.unsent = bytearray()
        self.is_stuck = False
        self._is_reading = True
        self.is_closed = False
        self._high_bytes = 0
        self._is_full = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high_bytes = high or 0

    def get_write_buffer_size(self) -> int:
        return len(self.unsent)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def write(self, data: Any) -> None:
        self.unsent += data
        if len(self.unsent) > self._high_bytes and not self._is_full and self.near is not None:
            self._is_full = True
            self.near.pause_writing()
        asyncio.get_running_loop().call_soon(self.deliver)

    def deliver(self) -> None:
        peer = self.peer
        assert peer is not None
        while self.unsent and not self.is_stuck and peer.is_reading() and not peer.is_closed:
            assert self.far is not None
            buffer = self.far.get_buffer(-1)
            count = min(len(buffer), len(self.unsent))
            buffer[:count] = self.unsent[:count]
            del self.unsent[:count]
            self.far.buffer_updated(count)
        if self._is_full and not self.unsent and self.near is not None and not self.is_closed:
            self._is_full = False
            self.near.resume_writing()

    def is_reading(self) -> bool:
        return self._is_reading

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        assert self.peer is not None
        asyncio.get_running_loop().call_soon(self.peer.deliver)

    def close(self) -> None:
        asyncio.get_running_loop().call_soon(self._end)

    def abort(self) -> None:
        self.unsent.clear()
        self.close()

    def _end(self) -> None:
        if self.is_closed:
            return
        self.deliver()
        self.is_closed = True
        assert self.near is not None
        assert self.peer is not None
        self.near.connection_lost(None)
        self.peer.close()


class End(asyncio.BufferedProtocol):
    """A protocol that notes what it gets, in a buffer that is too small for a record."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.buffer = bytearray(1000)
        self.received = bytearray()
        self.failure: Exception | None = None
        self.events: list[str] = []
        self.on_bytes: Callable[[], None] = lambda: None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.failure = exc
        self.events.append("lost")

    def eof_received(self) -> bool:
        self.events.append("eof")
        return False

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self.buffer)

    def buffer_updated(self, nbytes: int) -> None:
        self.received += self.buffer[:nbytes]
        self.on_bytes()


class Pair:
    """A client and a server, connected."""

    def __init__(
        self,
        server: dict[str, str] | None = None,
        client: dict[str, str] | None = None,
        handshakes: Handshakes | None = None,
        on_secured: Callable[[ssl.SSLObject], None] = lambda _: None,
    ) -> None:
        self.client, self.server = End(), End()
        self.failures: list[Exception] = []
        self.handshakes = Handshakes() if handshakes is None else handshakes
        own = server_of(tuple((server or properties(broker())).items()))
        theirs = client_of(tuple((client or properties(alice())).items()))
        self.server_tls = TlsTransport(
            self.server,
            own.context,
            self.handshakes,
            on_secured=on_secured,
            on_failed=self.failures.append,
        )
        self.client_tls = TlsTransport(
            self.client, theirs, Handshakes(), server_hostname="localhost"
        )
        self.to_server, self.to_client = Wire(), Wire()
        self.to_server.near, self.to_server.far = self.client_tls, self.server_tls
        self.to_client.near, self.to_client.far = self.server_tls, self.client_tls
        self.to_server.peer, self.to_client.peer = self.to_client, self.to_server
        self.server_tls.connection_made(self.to_client)
        self.client_tls.connection_made(self.to_server)


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
async def test_bytes_go_both_ways_and_the_end_comes_after_them(version: str) -> None:
    big = bytes(range(256)) * 4000

    pair = Pair(client=properties(alice(), ssl_enabled_protocols=version))
    # Written before the handshake, in pieces of many sizes.
    pair.client.transport.writelines([b"a" * 10, b"", b"b" * 20_000, memoryview(big)])
    expected = b"a" * 10 + b"b" * 20_000 + big
    await until(lambda: len(pair.server.received) == len(expected), pause_s=0)
    assert pair.server.received == expected
    assert pair.server.transport.get_extra_info("ssl_object").version() == version
    pair.server.transport.write(big)
    pair.server.transport.close()
    await until(lambda: "lost" in pair.client.events, pause_s=0)
    assert pair.client.received == big
    # It had to wait with what it wrote before the handshake.
    assert pair.client.events == ["pause", "resume", "eof", "lost"]
    assert pair.client.failure is None
    assert not pair.failures
    assert len(pair.handshakes) == 0


async def test_a_protocol_that_pauses_gets_nothing_until_it_resumes() -> None:
    pair = Pair()
    pair.server.on_bytes = lambda: pair.server.transport.pause_reading()
    pair.client.transport.write(b"x" * 40_000)
    await until(lambda: bool(pair.server.received), pause_s=0)
    for _ in range(100):
        await asyncio.sleep(0)
    assert len(pair.server.received) == 1000
    pair.server.on_bytes = lambda: None
    pair.server.transport.resume_reading()
    assert len(pair.server.received) == 1000  # not inside of the call
    await until(lambda: len(pair.server.received) == 40_000, pause_s=0)


async def test_a_peer_that_does_not_read_holds_back_the_writer_before_its_bytes_are_encrypted() -> (
    None
):
    pair = Pair()
    await until(lambda: len(pair.handshakes) == 0, pause_s=0)
    pair.to_client.is_stuck = True
    size = 4 << 20
    pair.server.transport.set_write_buffer_limits(high=1 << 20)
    pair.server.transport.write(bytes(size))
    assert pair.server.events == ["pause"]
    assert pair.server.transport.get_write_buffer_size() > size
    assert len(pair.to_client.unsent) < 512 * 1024
    pair.to_client.is_stuck = False
    pair.to_client.deliver()
    await until(lambda: len(pair.client.received) == size, pause_s=0)
    assert pair.server.events == ["pause", "resume"]


async def test_a_peer_that_reads_no_answers_is_not_read_from_either() -> None:
    """Its bytes stay where they are, so that they need no memory here."""

    pair = Pair()
    await until(lambda: len(pair.handshakes) == 0, pause_s=0)
    pair.to_client.is_stuck = True
    answers, requests = 1 << 20, 4 << 20
    pair.server.transport.write(bytes(answers))
    pair.client.transport.write(bytes(requests))
    for _ in range(200):
        await asyncio.sleep(0)
    assert not pair.server.received
    assert pair.client.transport.get_write_buffer_size() >= requests
    pair.to_client.is_stuck = False
    pair.to_client.deliver()
    await until(lambda: len(pair.server.received) == requests, pause_s=0)
    await until(lambda: len(pair.client.received) == answers, pause_s=0)


@pytest.mark.parametrize("auth", ["none", "requested", "required"])
@pytest.mark.parametrize("presents", [True, False])
async def test_the_certificate_of_a_client_is_seen_where_it_is_asked_for(
    auth: str, *, presents: bool
) -> None:
    seen: list[bytes | None] = []
    only_trust = {k: v for k, v in properties(alice()).items() if "truststore" in k}
    pair = Pair(
        properties(broker(), ssl_client_auth=auth),
        properties(alice()) if presents else only_trust,
        on_secured=lambda tls: seen.append(tls.getpeercert(binary_form=True)),
    )
    pair.client.transport.write(b"hello")
    if auth == "required" and not presents:
        await until(lambda: bool(pair.failures) and "lost" in pair.client.events, pause_s=0)
        assert "PEER_DID_NOT_RETURN_A_CERTIFICATE" in str(pair.failures[0])
        assert not pair.server.received
        return
    await until(lambda: pair.server.received == b"hello", pause_s=0)
    assert len(seen) == 1
    assert (seen[0] is not None) is (presents and auth != "none")


async def test_a_certificate_that_is_not_trusted_ends_both_sides_with_the_reason() -> None:
    stranger = certified("mallory", authority="stranger")
    client = {**properties(stranger), **properties(broker(), ssl_keystore_key="")}
    client["ssl.keystore.key"] = stranger.key_pem()
    client["ssl.keystore.certificate.chain"] = stranger.certificate_pem
    pair = Pair(properties(broker(), ssl_client_auth="required"), client)
    pair.client.transport.write(b"hello")
    await until(lambda: "lost" in pair.client.events and "lost" in pair.server.events, pause_s=0)
    assert isinstance(pair.failures[0], ssl.SSLCertVerificationError)
    assert isinstance(pair.client.failure, ssl.SSLError)
    assert not pair.server.received


async def test_a_peer_that_this_side_refuses_gets_no_response_and_no_byte_through() -> None:
    def refuse(_: ssl.SSLObject) -> None:
        raise PeerRefused("no rule applies")

    pair = Pair(on_secured=refuse)
    pair.client.transport.write(b"hello")
    await until(lambda: "lost" in pair.client.events, pause_s=0)
    assert [str(failure) for failure in pair.failures] == ["no rule applies"]
    assert not pair.server.received


async def test_a_client_without_tls_is_refused_with_its_first_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pair = Pair()
    pair.to_server.unsent.clear()
    pair.to_server.write(b"\x00\x00\x00\x20\x00\x12\x00\x03\x00\x00\x00\x01")
    monkeypatch.setattr(pair.client_tls, "step", lambda: None)
    await until(lambda: bool(pair.failures), pause_s=0)
    assert "WRONG_VERSION_NUMBER" in str(pair.failures[0])
    # Kept errors must not refer back to the connection: OpenSSL's memory would wait for the
    # garbage collector, which does not know how much it is.
    await until(lambda: "lost" in pair.server.events, pause_s=0)
    assert pair.failures[0].__traceback__ is None


async def test_a_silent_handshake_ends_in_time_and_only_the_oldest_give_way() -> None:
    handshakes = Handshakes(limit_s=0.01, most=2)
    pairs = [Pair(handshakes=handshakes) for _ in range(3)]
    for pair in pairs:
        pair.to_server.is_stuck = True
    assert [str(failure) for failure in pairs[0].failures] == ["more than 2 handshakes are running"]
    assert len(handshakes) == 2
    await until(lambda: len(handshakes) == 0, pause_s=0)
    assert [str(pair.failures[0]) for pair in pairs[1:]] == ["it was not complete after 0.01 s"] * 2


async def test_handshakes_take_turns_with_other_work() -> None:
    handshakes = Handshakes()
    order: list[str] = []

    class Step:
        def step(self) -> None:
            order.append("step")

        def fail(self, error: Exception) -> None: ...

    for _ in range(3):
        handshakes.ask_turn(Step())
    for _ in range(3):
        await asyncio.sleep(0)
        order.append("other")
    assert order == ["step", "other"] * 3


async def test_a_connection_that_its_owner_refuses_begins_no_handshake() -> None:
    class Refuses(End):
        def connection_made(self, transport: Any) -> None:
            transport.abort()

    handshakes = Handshakes()
    own = server_key(server_tls_settings(properties(broker())))
    transport, wire = TlsTransport(Refuses(), own.context, handshakes), Wire()
    wire.near, wire.peer = transport, Wire()
    wire.peer.near, wire.peer.peer = transport, wire
    transport.connection_made(wire)
    assert len(handshakes) == 0


async def test_damaged_bytes_never_reach_the_protocol_nor_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One bit of what a client sends is turned over, anywhere from its hello to its records."""
    rng = Random(7)

    unexpected: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: unexpected.append(what))
    outcomes = set()
    for _ in range(120):
        pair = Pair()
        target, turned = pair.to_server, rng.randrange(900)
        whole, seen = target.write, 0

        def write(data: bytes, turned: int = turned, whole: Any = whole) -> None:
            nonlocal seen
            damaged = bytearray(data)
            if 0 <= turned - seen < len(damaged):
                damaged[turned - seen] ^= 1 << rng.randrange(8)
            seen += len(damaged)
            whole(damaged)

        monkeypatch.setattr(target, "write", write)
        pair.client.transport.write(b"hello")
        for _ in range(30):
            await asyncio.sleep(0)
        # A bit beyond the last byte, or one that TLS does not protect, changes nothing.
        assert bytes(pair.server.received) in (b"", b"hello")
        outcomes.add((bytes(pair.server.received), bool(pair.failures)))
        pair.server_tls.abort()
        pair.client_tls.abort()
    assert (b"", True) in outcomes
    assert not unexpected
