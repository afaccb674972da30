"""A socket that a connection lends to a directory's thread for one job."""

import errno
import os
import resource
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from socket_pair import CONTENT, HEAD, TAIL, Pair, Transport

from spindle.common import filesystem
from spindle.common.filesystem import OsFile, OsFileSystem
from spindle.log.open_files import FileHandles
from spindle.runtime.disks.open_files import share_out
from spindle.runtime.network import sendfile_socket
from spindle.runtime.network.sendfile_socket import SendfileSocket, SocketUnavailable, lend_socket


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path / "segment")
    yield made
    made.close()


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_an_answer_goes_out_in_order(pair: Pair) -> None:
    loan = pair.borrow_socket()
    assert loan is not None
    pair.handles.get(str(pair.path))
    before = descriptors()
    expected = HEAD + HEAD + CONTENT[:100_000] + TAIL
    assert loan.send(lambda: pair.parts(100_000)) == (len(expected), False)
    assert pair.received(len(expected)) == expected
    assert descriptors() == before - 1


def test_several_jobs_send_what_a_slow_client_takes(pair: Pair) -> None:
    parts, received = pair.parts(), b""
    whole = HEAD + HEAD + CONTENT + TAIL
    fulls = 0
    while parts.size_bytes:
        loan = pair.borrow_socket()
        assert loan is not None
        room = loan.send(lambda: parts)
        assert room is not None
        parts.pin_files()
        fulls += room.is_full
        received += pair.received(room.sent_bytes)
        received += b"".join(parts.take(1000 if room.is_full else 0))
    assert fulls
    assert received == whole
    assert len(pair.handles) == 1


def test_a_borrowed_socket_that_was_taken_back_sends_nothing(pair: Pair) -> None:
    before = descriptors()
    loan = pair.borrow_socket()
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
    loan = pair.borrow_socket()
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
    loan = pair.borrow_socket()
    assert loan is not None
    pair.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    pair.client.close()
    parts = pair.parts()
    room = loan.send(lambda: parts)
    assert room is not None
    assert not room.is_full
    assert room.sent_bytes + parts.size_bytes == 2 * len(HEAD) + len(CONTENT) + len(TAIL)


def test_parts_that_sendfile_cannot_send_are_left(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EINVAL, "not with this file system")

    monkeypatch.setattr(OsFile, "send", refuse)
    loan = pair.borrow_socket()
    assert loan is not None
    pair.handles.get(str(pair.path))
    before = descriptors()
    parts = pair.parts(1000)
    assert loan.send(lambda: parts) == (2 * len(HEAD), False)
    assert descriptors() == before - 1
    assert b"".join(parts.take(2000)) == CONTENT[:1000] + TAIL


def test_nothing_is_lent_where_bytes_must_go_through_the_transport(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert lend_socket(Transport(None)) is None
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    assert lend_socket(Transport(pair.own, tls)) is None

    def no_descriptor(_: int) -> int:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(os, "dup", no_descriptor)
    loan, parts = pair.borrow_socket(), pair.parts()
    assert isinstance(loan, SocketUnavailable)
    assert loan.send(lambda: parts) == (0, False)
    assert loan.send(lambda: parts) is None
    assert not loan.take_back()
    monkeypatch.undo()
    monkeypatch.setattr(sendfile_socket, "CAN_SEND_FILES", False)
    assert pair.borrow_socket() is None


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
        loans = [lend_socket(Transport(connection)) for connection in connections]
        try:
            for number in range(shares.by_directory):
                handles.get(f"{tmp_path}/{number}", create=True)
            assert any(isinstance(loan, SendfileSocket) for loan in loans)
        finally:
            handles.close()
            for loan in loans:
                assert loan is None or loan.take_back()
    for connection in connections:
        connection.close()
