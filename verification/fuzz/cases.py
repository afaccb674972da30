"""One case of a run: the bytes that one connection sends, made from the run's seed and a number."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from struct import Struct
from typing import Final

from spindle.protocol.api import API_VERSIONS, request_class
from spindle.protocol.codec import encode, write_uvarint
from spindle.protocol.framing import request_prefix
from spindle.protocol.messages.produce import ProduceRequest
from verification.fuzz.request_filter import may_be_sent
from verification.fuzz.values import LONG_TEXT, Known, Values

_SIZE: Final = Struct(">i")
_MAX_TRIES: Final = 20
SENTINEL_ID: Final = 0x5EED
_EXTREMES: Final = (
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff",
    b"\x00\x00\x00\x00",
    b"\x00\x0f\x42\x40",
    b"\x7f\xff",
    b"\xff\xff\xff\xff\x0f",
    b"\x81\x89\x7a",
    b"\x00",
    b"\xff",
)
_LONG_STRING: Final = b"\x81\xfa\x01" + LONG_TEXT.encode()
"""As a compact string: its length plus 1 as a varint comes first."""


@dataclass(slots=True)
class Sent:
    """A request at its place in the data; it must be answered unless the connection is closed."""

    api_key: int
    version: int
    correlation_id: int
    is_answered: bool


@dataclass(slots=True)
class Case:
    """The bytes that one connection sends, and the answer that it must get."""

    number: int
    title: str
    data: bytes
    expected: list[Sent] = field(default_factory=list)
    """Empty for damaged input: then only the node and its other clients are checked."""
    piece_bytes: int = 0
    """The size of the pieces in which the data is sent; 0 for a single piece."""


def frame(payload: bytes) -> bytes:
    """Return a payload behind its 4-byte size."""
    return _SIZE.pack(len(payload)) + payload


def sentinel() -> bytes:
    """Return a small request whose answer shows that all requests before it are done."""
    return frame(request_prefix(API_VERSIONS, 0, SENTINEL_ID, "fuzz"))


class CaseMaker:
    """Makes the cases of a run. APIs and versions take turns, so that none is left out.

    Args:
        versions: first and last version by API key, as the node advertises them.
        may_be_sent: whether a payload may be sent to the node.
    """

    def __init__(
        self,
        seed: int,
        versions: dict[int, tuple[int, int]],
        known: Known,
        may_be_sent: Callable[[bytes], bool] = may_be_sent,
    ) -> None:
        self._seed = seed
        self._may_be_sent = may_be_sent
        self._known = known
        self._turns = [
            (key, version)
            for key, (first, last) in sorted(versions.items())
            for version in range(first, last + 1)
        ]
        Random(seed).shuffle(self._turns)

    @property
    def turns(self) -> int:
        """The number of pairs of API and version."""
        return len(self._turns)

    def make(self, number: int) -> Case:
        """Return the case of a number; earlier answers can change it."""
        random = Random(f"{self._seed}:{number}")
        key, version = self._turns[number % len(self._turns)]
        pick = random.random()
        if pick < 0.5:
            return self._sound(random, number, key, version)
        if pick < 0.55:
            return Case(number, "noise", random.randbytes(random.randrange(1, 400)))
        return self._damaged(random, number, key, version, pick)

    def _request(
        self, random: Random, key: int, version: int, correlation_id: int
    ) -> tuple[bytes, Sent]:
        """Return the payload of a request that may be sent to a node that others use."""
        for _ in range(_MAX_TRIES):
            request = Values(random, self._known).message(request_class(key), version)
            client_id = "c" * 32_767 if random.random() < 0.02 else "fuzz"
            prefix = request_prefix(key, version, correlation_id, client_id)
            payload = _with_longer_string(random, prefix + encode(request, version))
            if self._may_be_sent(payload):
                is_silent = isinstance(request, ProduceRequest) and request.acks == 0
                return payload, Sent(key, version, correlation_id, not is_silent)
        payload = request_prefix(API_VERSIONS, 0, correlation_id, "fuzz")
        return payload, Sent(API_VERSIONS, 0, correlation_id, True)

    def request(self, random: Random, correlation_id: int) -> tuple[bytes, Sent]:
        """Return the payload of a request of any API and version."""
        return self._request(random, *random.choice(self._turns), correlation_id)

    def _sound(self, random: Random, number: int, key: int, version: int) -> Case:
        """Return valid requests, one or several, in pieces of any size, and the sentinel."""
        count = random.choice((1, 1, 1, 2, 6))
        parts, expected = [], []
        for place in range(count):
            if place:
                key, version = random.choice(self._turns)
            payload, sent = self._request(random, key, version, place)
            parts.append(frame(payload))
            expected.append(sent)
        parts.append(sentinel())
        expected.append(Sent(API_VERSIONS, 0, SENTINEL_ID, True))
        piece = random.choice((0, 0, 0, 0, 1400, 64))
        title = ", ".join(f"API {s.api_key} v{s.version}" for s in expected[:-1])
        return Case(number, title, b"".join(parts), expected, piece)

    def _damaged(self, random: Random, number: int, key: int, version: int, pick: float) -> Case:
        for _ in range(_MAX_TRIES):
            payload, _ = self._request(random, key, version, number & 0x7FFFFFFF)
            if pick < 0.65:
                changed, what = bytes(_header_game(random, payload)), "header"
            elif pick < 0.7:
                data = _wrong_size(random, payload)
                return Case(number, f"API {key} v{version}, wrong size", data)
            else:
                changed, what = mutate(random, payload), "bytes"
            if changed and self._may_be_sent(changed):
                title = f"API {key} v{version}, changed {what}"
                return Case(number, title, frame(changed) + sentinel())
        return Case(number, "noise", random.randbytes(64))


def _with_longer_string(random: Random, payload: bytes) -> bytes:
    """Return the payload, sometimes with a compact string that is longer than allowed."""
    start = payload.find(_LONG_STRING)
    if start < 0 or random.random() < 0.5:
        return payload
    size = random.choice((32_768, 40_000, 100_000))
    longer = bytearray()
    write_uvarint(longer, size + 1)
    return payload[:start] + bytes(longer) + b"y" * size + payload[start + len(_LONG_STRING) :]


def mutate(random: Random, payload: bytes) -> bytes:
    """Change a payload: flipped bits, extremes over lengths, cut, doubled, spliced."""
    data = bytearray(payload)
    for _ in range(random.choice((1, 1, 1, 2, 5))):
        # Key and version stay, so that the damage reaches the request itself.
        at = random.randrange(8, max(len(data), 9))
        pick = random.randrange(6)
        if pick == 0 and at < len(data):
            data[at] ^= 1 << random.randrange(8)
        elif pick == 1:
            extreme = random.choice(_EXTREMES)
            data[at : at + len(extreme)] = extreme
        elif pick == 2:
            del data[at:]
        elif pick == 3:
            end = min(len(data), at + random.randrange(1, 64))
            data[at:at] = data[at:end] * random.choice((1, 1, 8))
        elif pick == 4:
            del data[at : at + random.randrange(1, 9)]
        else:
            data[at:at] = random.randbytes(random.randrange(1, 9))
    return bytes(data)


def _header_game(random: Random, payload: bytes) -> bytearray:
    data = bytearray(payload)
    pick = random.randrange(4)
    if pick == 0:  # another API key
        data[0:2] = random.choice((b"\xff\xff", b"\x03\xe7", random.randbytes(2)))
    elif pick == 1:  # another version: the body is of the wrong form
        data[2:4] = random.choice((b"\xff\xff", b"\x7f\xff", bytes((0, random.randrange(20)))))
    elif pick == 2:  # the length of the client id
        data[8:10] = random.choice((b"\xff\xff", b"\xff\xfe", b"\x7f\xff", b"\x00\x00"))
    else:
        del data[random.randrange(1, 14) :]
    return data


def _wrong_size(random: Random, payload: bytes) -> bytes:
    size = random.choice(
        (0, -1, -(1 << 31), (1 << 31) - 1, 104_857_601, 104_857_600, len(payload) + 1, 1, 7)
    )
    return _SIZE.pack(size) + payload
