"""Notifications to commands and web addresses that fail, hang, drip or redirect."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import click
import pytest
from disk_reports import disk, report, silent

from spindle.cli.main import run
from spindle.cli.status import watch as watch_module
from spindle.cli.status.cluster_status import Problem, Status
from spindle.cli.status.notification import (
    Document,
    NotDelivered,
    Notifier,
    Targets,
    changes_of,
    merged,
    post,
    run_command,
)
from spindle.client.admin.cluster import ClusterDescription
from spindle.client.cluster_metadata import ClusterView
from spindle.client.errors import ClientError

LIMIT_S = 0.3


def problem(key: str) -> dict[str, Problem]:
    return {key: Problem(key, "kind", f"{key} is broken")}


def raised(*keys: str) -> Document:
    now = {key: state for name in keys for key, state in problem(name).items()}
    document = changes_of({}, now, "id", 5)
    assert document is not None
    return document


@contextmanager
def server(answer: Callable[[socket.socket], object]) -> Iterator[str]:
    """Run a server that reads a request and answers it, for each connection; yield its address."""

    def serve() -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            with closing(peer):
                try:
                    peer.recv(65_536)
                    answer(peer)
                except OSError:
                    continue

    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/hook?a=b"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_changes_say_what_came_and_what_went() -> None:
    document = changes_of(problem("a"), problem("b"), "id", 5)
    assert document is not None
    assert document["raised"] == [{"key": "b", "kind": "kind", "text": "b is broken"}]
    assert [problem["key"] for problem in document["cleared"]] == ["a"]
    assert [problem["key"] for problem in document["problems"]] == ["b"]
    assert changes_of(problem("a"), problem("a"), "id", 5) is None


def test_a_problem_that_ends_while_a_target_hangs_is_not_sent() -> None:
    gone = changes_of(problem("a"), {}, "id", 6)
    assert gone is not None
    assert merged(raised("a"), gone)["raised"] == []
    assert merged(raised("a"), gone)["cleared"] == []
    assert [problem["key"] for problem in merged(raised("a"), raised("b"))["raised"]] == ["a", "b"]


def test_an_answer_of_success_is_delivered() -> None:
    with server(lambda peer: peer.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")) as url:
        post(url, raised("a"), LIMIT_S)


def drip(peer: socket.socket) -> None:
    """Send a byte of an answer again and again, until the client has gone."""
    waiting = threading.Event()
    for number in b"HTTP/1.1 200 OK\r\nX: " + b"x" * 10_000:
        peer.sendall(bytes([number]))
        waiting.wait(0.02)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda peer: peer.sendall(b"HTTP/1.1 500 No\r\n\r\n"), "the response was status 500"),
        (
            lambda peer: peer.sendall(b"HTTP/1.1 302 No\r\nLocation: file:///etc/passwd\r\n\r\n"),
            "the response was status 302",
        ),
        (lambda peer: b"".join(iter(lambda: peer.recv(65_536), b"")), "no response within"),
        (drip, "no response within"),
    ],
    ids=["error", "redirection", "hangs", "drips"],
)
def test_an_address_that_does_not_take_a_notification_is_a_failure_in_time(
    answer: Callable[[socket.socket], object], reason: str
) -> None:
    with server(answer) as url, pytest.raises(NotDelivered, match=reason):
        post(url, raised("a"), LIMIT_S)


@pytest.mark.parametrize("text", [b"", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\n" * 200])
def test_nonsense_in_place_of_an_answer_is_a_failure_and_no_crash(text: bytes) -> None:
    with (
        server(lambda peer: peer.sendall(text)) as url,
        Notifier(Targets(None, url), limit_s=LIMIT_S, retry_s=60) as notifier,
    ):
        notifier.send(raised("a"))
        while not (lines := notifier.failures()):
            pass
    assert lines[0].startswith("a notification was not delivered to 127.0.0.1: ")


def test_a_command_gets_the_document_and_its_failure_is_named(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run_command(f"cat > {out}", raised("a"), 5.0)
    assert json.loads(out.read_text()) == raised("a")
    with pytest.raises(NotDelivered, match="it exited with code 7"):
        run_command("exit 7", raised("a"), 5.0)
    with pytest.raises(NotDelivered, match=r"it took longer than 0\.3 s"):
        run_command("sleep 60 & sleep 60", raised("a"), LIMIT_S)


def test_a_document_that_was_not_delivered_is_sent_again_with_the_next_one(tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = f"test -e {out}.ready && cat > {out} || exit 1"
    with Notifier(Targets(command, None), retry_s=60) as notifier:
        notifier.send(raised("a"))
        while not notifier.failures():
            pass
        (tmp_path / "out.ready").touch()
        notifier.send(raised("b"))
        while not out.exists() or not out.read_text():
            pass
    assert [problem["key"] for problem in json.loads(out.read_text())["raised"]] == ["a", "b"]


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "http://", "http://h:99999/", "http://h/\r\nX: y", "http://[::/"]
)
def test_other_addresses_are_refused(url: str) -> None:
    with pytest.raises(click.UsageError, match="must be an http:// or https:// URL"):
        Targets.of(None, url)


def status_of(*reports: Any) -> Status:
    nodes = tuple(report.node for report in reports)
    return Status(ClusterDescription("id", 1, nodes), "refused", ClusterView(), reports)


def test_a_failed_check_or_an_unresponsive_broker_clears_no_problem(
    bootstrap: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def take(*_: object) -> Status:
        polled = next(polls)
        if isinstance(polled, Exception):
            raise polled
        return polled

    failed = status_of(report(disk("/d", failure="EIO")))
    polls: Iterator[Status | Exception] = iter(
        [failed, ClientError("no answer"), status_of(silent(1, is_fenced=False)), failed]
    )
    monkeypatch.setattr(watch_module, "take_status", take)
    assert run(("status", "--watch", "--interval", "0.1", "--count", "4", "--json")) == 3
    documents = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    cleared = [problem["key"] for document in documents for problem in document["cleared"]]
    assert cleared == ["unknown", "silent 1"]
    assert "offline 1:/d" in [problem["key"] for problem in documents[0]["raised"]]


@pytest.mark.parametrize(("count", "last"), [(10, "p9 lags"), (11, "2 more lagging replicas")])
def test_many_changes_of_one_kind_are_counted(count: int, last: str) -> None:
    full = {"kind": "full disks", "text": "a disk is full"}
    lagging = [{"kind": "lagging replicas", "text": f"p{number} lags"} for number in range(count)]
    lines = watch_module.change_lines([*lagging, full])
    assert len(lines) == 11
    assert lines[-2:] == [last, "a disk is full"]


def test_options_of_notifications_need_the_watch(
    bootstrap: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for option in ("--notify-command=true", "--interval=3", "--count=1"):
        assert run(("status", option)) == 2
        assert "need --watch" in capsys.readouterr().err
    assert run(("status", "--watch", "--notify-command", " ")) == 2
    assert "--notify-command is empty" in capsys.readouterr().err
