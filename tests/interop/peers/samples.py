"""Records with every content that a record can have; the same list for every client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from peers.compare import FIRST_TIMESTAMP_MS

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]

Headers = list[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class Sample:
    """One record to send; None is a null key or value."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int

    def seen(self) -> list[object]:
        """Return what a consumer must see, as plain data."""
        return [
            _text(self.key),
            _text(self.value),
            [[name, _text(value)] for name, value in self.headers],
            self.timestamp_ms,
        ]


def samples(count: int = 50) -> list[Sample]:
    """Return `count` different records: null, empty and long fields, headers, unordered times."""
    samples = []
    for number in range(count):
        key = None if number % 5 == 0 else b"" if number % 7 == 0 else b"key-%d" % number
        value = (
            None if number % 11 == 3 else b"" if number % 13 == 0 else b"value-%d " % number * 40
        )
        headers: Headers = []
        if number % 3 == 1:
            headers = [("trace", b"%08d" % number), ("empty", b""), ("trace", b"again")]
        elif number % 3 == 2:
            headers = [("null", None), ("ünïcode", "wért".encode())]
        # Times go up and down within a batch, as the times of real events do.
        timestamp_ms = FIRST_TIMESTAMP_MS + number * 1000 - (number % 4) * 5000
        samples.append(Sample(key, value, headers, timestamp_ms))
    return samples


def samples_with_content() -> list[Sample]:
    """Return the samples that have a key or a value; some clients refuse the others."""
    return [one for one in samples() if one.key is not None or one.value is not None]


def seen(key: bytes | None, value: bytes | None, headers: Any, timestamp_ms: int) -> list[object]:
    """Return a consumed record in the form of Sample.seen()."""
    pairs = [[name, _text(data)] for name, data in list(headers or [])]
    return [_text(key), _text(value), pairs, timestamp_ms]


def _text(data: bytes | None) -> str | None:
    return None if data is None else bytes(data).decode()
