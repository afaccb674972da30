"""Two lines about the start of a Spark session, and how many seconds each part of it took."""

import time
from typing import TextIO

from spindle.pipeline.spark.java import Java


class StartReport:
    """Writes to `stream` if `is_wanted`; None means if a person sees the stream at once."""

    def __init__(self, stream: TextIO, is_wanted: bool | None) -> None:
        self._stream = stream
        self._is_wanted = _is_watched(stream) if is_wanted is None else is_wanted
        self._started_s = self._part_started_s = time.monotonic()
        self._parts: list[str] = []

    def starting(self, java: Java) -> None:
        """Say that Spark is being started, and with which Java."""
        version = ".".join(map(str, java.version))
        self._write(f"Starting Spark on Java {version} ({java.origin}) ...")

    def part_ends(self, name: str) -> None:
        """Note how long the part took that began when the last one ended."""
        now_s = time.monotonic()
        self._parts.append(f"{name} {now_s - self._part_started_s:.1f} s")
        self._part_started_s = now_s

    def ready(self) -> None:
        """Say that the session is there, and where the time went."""
        seconds = time.monotonic() - self._started_s
        self._write(f"Spark is ready after {seconds:.1f} s ({', '.join(self._parts)})")

    def _write(self, line: str) -> None:
        if self._is_wanted:
            self._stream.write(f"{line}\n")
            self._stream.flush()


def _is_watched(stream: TextIO) -> bool:
    """Return True for a terminal, and for a cell of a notebook, which is no terminal."""
    return stream.isatty() or type(stream).__module__ == "ipykernel.iostream"
