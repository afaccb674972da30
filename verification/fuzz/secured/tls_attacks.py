"""Damaged TLS: handshakes and records that are cut, changed, split, slow, or no TLS at all.

The client's side of TLS runs in memory (`ssl.MemoryBIO`), so each record can be changed before it
is sent. Its random numbers are OpenSSL's own: a seed repeats the damage, not the bytes.
"""

import asyncio
import contextlib
import ssl
from random import Random
from typing import Final, NamedTuple

from spindle.protocol.api import API_VERSIONS
from spindle.protocol.framing import request_prefix
from verification.fuzz.cases import Case, frame, mutate
from verification.fuzz.wire import Finding, RawConnection

_READ_S: Final = 0.3
_SLOW_S: Final = 0.01
_RECORD_HEADER: Final = 5
_RECORD_TYPES: Final = (20, 21, 22, 23, 24)
_MAX_RECORD: Final = 16_384 + 256
_NO_TLS: Final = (
    frame(request_prefix(API_VERSIONS, 0, 1, "fuzz")),
    b"GET / HTTP/1.1\r\nHost: fuzz\r\n\r\n",
    b"\x80\x2e\x01\x03\x01\x00\x15\x00\x00\x00\x10\x01\x02\x03",
    b"\x15\x03\x03\x00\x02\x02\x28",
    b"\x15\x03\x03\x00\x02\x01\x00" * 40,
    b"\x16\x03\x01\xff\xff",
    b"\x16\x03\x01\x00\x00" * 200,
    b"\x17\x03\x03\x40\x00" + bytes(16_384),
)
"""Requests of Kafka, HTTP and SSL 2; alerts; records that are empty or too large."""


class TlsAttack(NamedTuple):
    """The damage of one connection.

    Attributes:
        flight: which of the client's flights is damaged; 1 is the first after the handshake.
        is_slow: the bytes come one by one.
    """

    flight: int
    is_slow: bool


async def attack_tls(
    client: RawConnection, context: ssl.SSLContext, random: Random, number: int
) -> Case:
    """Attack on a connection without TLS of its own, and return what was sent.

    Raises:
        Finding: the node answers with anything but TLS.
    """
    case = Case(number, "TLS", b"")
    with contextlib.suppress(ConnectionError, TimeoutError, ssl.SSLError):
        if random.random() < 0.25:
            case.title = "no TLS"
            await _send(client, case, random.choice(_NO_TLS), is_slow=False)
            await _answer(client)
        else:
            await _damaged(client, context, random, case)
    return case


async def _damaged(
    client: RawConnection, context: ssl.SSLContext, random: Random, case: Case
) -> None:
    """Send the flights of a handshake and a request; one of them is damaged."""
    attack = TlsAttack(random.choice((0, 0, 0, 1, 1, 2)), random.random() < 0.1)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    for flight in range(3):
        is_done = _advance(tls)
        if is_done and flight:
            tls.write(frame(request_prefix(API_VERSIONS, 0, 1, "fuzz")))
        records = outgoing.read()
        if flight == attack.flight:
            records, damage = damaged_records(random, records)
            case.title = f"TLS, flight {flight}: {damage}"
        await _send(client, case, records, is_slow=attack.is_slow)
        answer = await _answer(client)
        if flight == attack.flight:
            return
        incoming.write(answer)


def damaged_records(random: Random, data: bytes) -> tuple[bytes, str]:
    """Return records with a damage, and its name."""
    pick = random.randrange(8)
    if pick == 0:
        return data[: random.randrange(len(data) + 1)], "cut"
    if pick == 1:
        return mutate(random, data), "changed bytes"
    if pick == 2:
        size = random.choice((0, 1, _MAX_RECORD, _MAX_RECORD + 1, 0xFFFF))
        return data[:3] + size.to_bytes(2, "big") + data[_RECORD_HEADER:], "wrong size"
    if pick == 3:
        return bytes((random.choice(_RECORD_TYPES),)) + data[1:], "another type"
    if pick == 4:
        return data * random.choice((2, 3)), "repeated"
    if pick == 5:
        return _split_into_records(random, data), "split"
    if pick == 6:
        version = random.choice((b"\x02\x00", b"\x03\x00", b"\x03\x04", b"\xff\xff"))
        return data[:1] + version + data[3:], "another version"
    return random.choice(_NO_TLS) + data, "after something else"


def _split_into_records(random: Random, data: bytes) -> bytes:
    """Return the content of the first record in many small ones."""
    content, header = data[_RECORD_HEADER:], data[:3]
    size = random.choice((1, 2, 7))
    return b"".join(
        header + len(piece).to_bytes(2, "big") + piece
        for start in range(0, len(content), size)
        if (piece := content[start : start + size])
    )


def _advance(tls: ssl.SSLObject) -> bool:
    """Continue the handshake; return True when it is done on this side."""
    try:
        tls.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


async def _send(client: RawConnection, case: Case, data: bytes, *, is_slow: bool) -> None:
    case.data += data
    if not is_slow:
        client.writer.write(data)
        await client.writer.drain()
        return
    for start in range(min(len(data), 60)):
        if client.writer.is_closing() or client.reader.at_eof():
            return
        client.writer.write(data[start : start + 1])
        await client.writer.drain()
        await asyncio.sleep(_SLOW_S)
    client.writer.write(data[60:])
    await client.writer.drain()


async def _answer(client: RawConnection) -> bytes:
    """Return the bytes that come within a moment.

    Raises:
        Finding: they are no TLS record.
    """
    answer = b""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_READ_S):
            answer = await client.reader.read(1 << 16)
    if answer and answer[0] not in _RECORD_TYPES:
        raise Finding(f"the TLS port answered without TLS: {answer[:100]!r}")
    return answer
