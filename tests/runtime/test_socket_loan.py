"""A socket that a connection lends to a directory's thread for one answer."""

import errno
import os
import resource
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from spindle.common import filesystem
from spindle.common.errors import ShortRead
from spindle.common.filesystem import OsFile, OsFileSystem
from spindle.log.handles import FileHandles
from spindle.log.segments.file_range import FileRange
from spindle.runtime.disks.open_files import share_out
from spindle.runtime.network import socket_loan
from spindle.runtime.network.socket_loan import LentSocket, Patience, lend_socket

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
        self.patience = Patience()

    def lend(self) -> LentSocket | None:
        return lend_socket(Transport(self.own), self.patience)

    def parts(self, size_bytes: int = len(CONTENT)) -> list[Any]:
        return [HEAD, FileRange(self.handles, str(self.path), 6, size_bytes), TAIL]

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


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path / "segment")
    yield made
    made.close()


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_an_answer_goes_out_in_order(pair: Pair) -> None:
    loan = pair.lend()
    assert loan is not None
    pair.handles.get(str(pair.path))
    before = descriptors()
    sent = loan.send(lambda: pair.parts(100_000))
    expected = HEAD + CONTENT[:100_000] + TAIL
    assert sent == (len(expected), [])
    assert pair.received(len(expected)) == expected
    assert descriptors() == before - 1


def test_what_a_slow_client_does_not_take_is_read_and_comes_back_soon(pair: Pair) -> None:
    loan = pair.lend()
    assert loan is not None
    began_s = monotonic()
    sent = loan.send(pair.parts)
    assert monotonic() - began_s < 2
    assert sent is not None
    assert 0 < sent.sent_bytes < len(CONTENT)
    rest = b"".join(sent.rest)
    assert pair.received(sent.sent_bytes) + rest == HEAD + CONTENT + TAIL


def test_a_client_that_is_slow_again_is_waited_for_less_and_less() -> None:
    patience = Patience()
    waits = []
    for _ in range(10):
        wait_s = patience.wait_s(1 << 20)
        waits.append(wait_s > 0)
        if wait_s:
            patience.note(took_all=False)
    assert waits == [True, False, True, False, False, True, False, False, False, False]
    patience.note(took_all=True)
    patience.note(took_all=False)
    assert [patience.wait_s(1) > 0 for _ in range(2)] == [False, True]


def test_a_loan_that_was_taken_back_sends_nothing(pair: Pair) -> None:
    before = descriptors()
    loan = pair.lend()
    assert loan is not None
    assert descriptors() == before + 1
    assert loan.take_back()
    assert descriptors() == before
    assert loan.send(pair.parts) is None
    assert not loan.take_back()
    pair.client.setblocking(False)
    with pytest.raises(BlockingIOError):
        pair.client.recv(1)


def test_the_connection_may_be_closed_before_its_socket_is_used(pair: Pair, tmp_path: Path) -> None:
    """Another client gets the number of the closed socket, but not the answer."""
    loan = pair.lend()
    assert loan is not None
    number = pair.own.fileno()
    pair.own.close()
    other = Pair(tmp_path / "other")
    os.dup2(other.own.fileno(), number)
    try:
        loan.send(lambda: pair.parts(100_000))
        other.client.setblocking(False)
        with pytest.raises(BlockingIOError):
            other.client.recv(1)
    finally:
        os.close(number)
        other.close()


def test_a_client_that_has_gone_is_no_failure_of_the_disk(pair: Pair) -> None:
    loan = pair.lend()
    assert loan is not None
    pair.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    pair.client.close()
    sent = loan.send(pair.parts)
    assert sent is not None
    assert sent.sent_bytes + sum(map(len, sent.rest)) == len(HEAD) + len(CONTENT) + len(TAIL)


def test_a_file_that_cannot_be_sent_is_read(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EINVAL, "not with this file system")

    monkeypatch.setattr(OsFile, "send", refuse)
    loan = pair.lend()
    assert loan is not None
    sent = loan.send(lambda: pair.parts(1000))
    assert sent is not None
    assert pair.received(sent.sent_bytes) + b"".join(sent.rest) == HEAD + CONTENT[:1000] + TAIL


def test_a_dead_disk_is_seen_by_the_read_of_the_rest(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> Any:
        raise OSError(errno.EIO, "dead")

    loan = pair.lend()
    assert loan is not None
    before = descriptors()
    pair.handles.get(str(pair.path))
    monkeypatch.setattr(OsFile, "send", fail)
    monkeypatch.setattr(OsFile, "pread", fail)
    with pytest.raises(OSError, match="dead"):
        loan.send(pair.parts)
    assert descriptors() == before


def test_a_file_that_was_cut_ends_the_answer(pair: Pair) -> None:
    loan = pair.lend()
    assert loan is not None
    os.truncate(pair.path, 50_000)
    with pytest.raises(ShortRead, match="ends at byte 50000"):
        loan.send(lambda: pair.parts(100_000))


def test_nothing_is_lent_where_bytes_must_go_through_the_transport(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert lend_socket(Transport(None), pair.patience) is None
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    assert lend_socket(Transport(pair.own, tls), pair.patience) is None

    def no_descriptor(_: int) -> int:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(socket_loan.os, "dup", no_descriptor)
    assert pair.lend() is None
    monkeypatch.undo()
    monkeypatch.setattr(socket_loan, "CAN_SEND_FILES", False)
    assert pair.lend() is None


@pytest.fixture
def thousand_descriptors() -> Iterator[int]:
    """Not counting those that are open already."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024 + descriptors(), before[1]))
    yield 1024
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_loans_of_all_connections_leave_descriptors_for_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, thousand_descriptors: int
) -> None:
    """A directory's thread that waited for a descriptor would wait for the loans queued behind."""
    monkeypatch.setattr(filesystem, "_DESCRIPTORS_WAIT_S", 0.0)
    shares = share_out(thousand_descriptors, 1, is_broker=True, is_controller=False)
    connections = [socket.socket() for _ in range(shares.by_brokers_clients)]
    handles = FileHandles(OsFileSystem(), shares.by_directory)
    for _ in range(2):  # the loans that ended make room for others
        loans = [lend_socket(Transport(each), Patience()) for each in connections]
        try:
            for number in range(shares.by_directory):
                handles.get(f"{tmp_path}/{number}", create=True)
            assert any(loans)
        finally:
            handles.close()
            for loan in loans:
                assert loan is None or loan.take_back()
    for each in connections:
        each.close()
