"""One request and one answer over a Unix socket: lines of JSON."""

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from spindle.common.text import error_text

_CHUNK_BYTES: Final = 65536
_MAX_ADDRESS_BYTES: Final = 107


class Refused(Exception):
    """The other side refused the request. The text gives the reason."""


class NoReply(Exception):
    """The process at the other end has ended, or gave no answer in time."""


def ask(path: str, request: dict[str, Any], timeout_s: float) -> Any:
    """Send a request and return the result.

    Raises:
        Refused: the other side could not do it.
        NoReply: it does not listen, has ended meanwhile, or gave no answer in time.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(timeout_s)
        try:
            with _address_of(path) as address:
                connection.connect(address)
            connection.sendall(json.dumps(request).encode() + b"\n")
            line = read_line(connection)
        except TimeoutError:
            raise TimeoutError(f"no answer after {timeout_s:g} s") from None
        except OSError as error:
            raise NoReply(error_text(error)) from error
    if not line:
        raise NoReply("the connection was closed")
    answer = json.loads(line)
    if "error" in answer:
        raise Refused(answer["error"])
    return answer["result"]


def read_line(connection: socket.socket) -> bytes:
    """Return the bytes up to the first line end, or none if the other side closes before it."""
    received = b""
    while not received.endswith(b"\n"):
        chunk = connection.recv(_CHUNK_BYTES)
        if not chunk:
            return b""
        received += chunk
    return received


def send_result(connection: socket.socket, result: Any) -> None:
    """Answer a request."""
    connection.sendall(json.dumps({"result": result}).encode() + b"\n")


def send_error(connection: socket.socket, text: str) -> None:
    """Refuse a request."""
    connection.sendall(json.dumps({"error": text}).encode() + b"\n")


def listen(path: str) -> socket.socket:
    """Return a socket that listens at the path."""
    listening = socket.socket(socket.AF_UNIX)
    with _address_of(path) as address:
        listening.bind(address)
    listening.listen(64)
    return listening


@contextmanager
def _address_of(path: str) -> Iterator[str]:
    """Yield an address of the socket at a path; the path may exceed the limit of addresses."""
    if len(os.fsencode(path)) <= _MAX_ADDRESS_BYTES:
        yield path
        return
    folder, name = os.path.split(path)
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{name}"
    finally:
        os.close(descriptor)
