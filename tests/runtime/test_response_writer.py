"""The rest of an answer, while a job of a directory's thread sends it or waits for the client."""

import socket
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from spindle.common.errors import LogDirectoryFailed
from spindle.disks.executor import DirectoryExecutor
from spindle.runtime.network.response_writer import ResponseWriter
from spindle.runtime.network.send_backlog import SendBacklog
from spindle.runtime.network.sendfile_socket import SendfileSocket
from spindle.serving.fetch.sendfile_response import PartialResponse, StreamedResponse

ANSWER = bytes(4 << 20)  # more than the socket takes


class Executor:
    """Keeps the one job that was submitted, as a thread that has not come to it."""

    def call(self, callback: Callable[..., None], function: Callable[..., Any], loan: Any) -> None:
        self.callback, self.function, self.loan = callback, function, loan


class Owner:
    """A connection and its transport."""

    def __init__(self, own: socket.socket) -> None:
        self.own = own
        self.error: object = None

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int, low: int = 0) -> None:
        pass

    def get_extra_info(self, name: str) -> Any:
        return self.own if name == "socket" else None

    def on_sent(self, sent_bytes: int) -> None:
        pass

    def on_progress(self) -> None:
        pass

    def abort_sending(self, error: object) -> None:
        self.error = error


class Scene:
    """A rest of which a job is under way."""

    def __init__(self) -> None:
        self.client, own = socket.socketpair()
        own.setblocking(False)
        self.client.settimeout(10)
        self.owner, self.executor = Owner(own), Executor()
        self.unsent = SendBacklog(lambda: 0.0)
        self.writer = ResponseWriter(self.owner, self.unsent)
        self.writer.open(cast(Any, self.owner))
        self.writer.client_keeps_up = True
        self.answer = StreamedResponse(cast(DirectoryExecutor, self.executor), lambda: [ANSWER])
        self.answer.begun()
        self.writer.stream(PartialResponse(0, [], self.answer))
        self.writer.resume()


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    made.executor.loan.end()
    made.client.close()
    made.owner.own.close()


def test_its_memory_counts_while_a_job_is_under_way(scene: Scene) -> None:
    assert scene.unsent.total_bytes == len(ANSWER)
    scene.writer.count()
    assert scene.unsent.total_bytes == len(ANSWER)


def test_a_client_hears_the_end_although_an_abandoned_thread_keeps_its_socket(scene: Scene) -> None:
    loan = scene.executor.loan
    assert isinstance(loan, SendfileSocket)
    scene.executor.function(loan)
    assert loan.descriptor >= 0  # the job waits
    failure = LogDirectoryFailed("/d", "it hangs", 0)
    scene.executor.callback(None, failure)
    assert scene.owner.error is failure
    while scene.client.recv(1 << 20):
        pass


def test_a_borrowed_socket_that_an_abandoned_thread_has_not_used_is_returned(scene: Scene) -> None:
    scene.executor.callback(None, LogDirectoryFailed("/d", "it hangs", 0))
    assert not scene.executor.loan.take_back()


def test_a_job_may_report_after_the_connection_has_ended(scene: Scene) -> None:
    scene.writer.close(cast(Any, scene.owner))
    assert scene.executor.function(scene.executor.loan) is None  # the loan was taken back
    scene.executor.callback(None, None)
    assert scene.unsent.total_bytes == 0
