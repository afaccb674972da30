"""Both ends of a connection, and an answer whose records are in a file."""

import socket
from pathlib import Path
from typing import Any

from spindle.common.filesystem import OsFileSystem
from spindle.log.open_files import FileHandles
from spindle.log.segments.file_range import FileRange
from spindle.runtime.network.sendfile_socket import Borrowed, lend_socket
from spindle.serving.fetch.response_parts import AnswerParts

HEAD, TAIL = b"head" * 10, b"tail"
CONTENT = bytes(range(256)) * 32 * 1024  # 8 MiB, more than a socket takes


class Transport:
    """As far as a loan looks at it."""

    def __init__(self, own: socket.socket | None, tls: object = None) -> None:
        self.info = {"socket": own, "sslcontext": tls}

    def get_extra_info(self, name: str) -> Any:
        return self.info.get(name)


class Pair:
    """Both ends of a TCP connection, and a file to be sent."""

    def __init__(self, path: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.client = socket.create_connection(server.getsockname())
            self.own, _ = server.accept()
        self.own.setblocking(False)
        self.client.settimeout(5)
        self.path = path
        self.path.write_bytes(b"before" + CONTENT + b"after")
        self.handles = FileHandles(OsFileSystem())

    def borrow_socket(self, *, may_wait: bool = False) -> Borrowed | None:
        return lend_socket(Transport(self.own), may_wait=may_wait)

    def parts(self, size_bytes: int = len(CONTENT)) -> AnswerParts:
        records = FileRange(self.handles, str(self.path), 6, size_bytes)
        return AnswerParts([HEAD, b"", HEAD, records, TAIL])

    def received(self, size_bytes: int) -> bytes:
        data = bytearray()
        while len(data) < size_bytes:
            more = self.client.recv(1 << 20)
            if not more:
                break
            data += more
        return bytes(data)

    def close(self) -> None:
        self.own.close()
        self.client.close()
        self.handles.close()
