"""Sends notifications to a command or a URL, in the background.

Each target has a thread that sends one document at a time, within a time limit. Documents that are
added meanwhile are merged into one, so a target that hangs costs neither time nor memory. A
document that could not be sent is merged with the next one and sent again.
"""

import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import SplitResult, urlsplit

import click

from spindle.common.text import error_text

_TIMEOUT_S: Final = 10.0
"""The time that a target has for one document."""
_RETRY_S: Final = 30.0
_SHUTDOWN_S: Final = 3.0
"""The time at the end of the program in which a document may still be sent."""
Document = dict[str, Any]


def changes_of(
    before: Mapping[str, Any], now: Mapping[str, Any], cluster_id: str, time_ms: int
) -> Document | None:
    """Return a document about problems that appeared or ended; None if there are none.

    Args:
        before, now: problems with `key`, `kind` and `text`, by key.
        cluster_id: empty if it is unknown.
    """
    raised = [problem for key, problem in now.items() if key not in before]
    cleared = [problem for key, problem in before.items() if key not in now]
    if not raised and not cleared:
        return None
    return {
        "clusterId": cluster_id,
        "timeMs": time_ms,
        "raised": [_shown(problem) for problem in raised],
        "cleared": [_shown(problem) for problem in cleared],
        "problems": [_shown(problem) for problem in now.values()],
    }


def _shown(problem: Any) -> dict[str, str]:
    return {"key": problem.key, "kind": problem.kind, "text": problem.text}


def merged(earlier: Document | None, later: Document) -> Document:
    """Merge two documents; problems that appeared and ended in between are left out."""
    if earlier is None:
        return later
    raised = {problem["key"]: problem for problem in earlier["raised"]}
    cleared = {problem["key"]: problem for problem in earlier["cleared"]}
    for problem in later["raised"]:
        if cleared.pop(problem["key"], None) is None:
            raised[problem["key"]] = problem
    for problem in later["cleared"]:
        if raised.pop(problem["key"], None) is None:
            cleared[problem["key"]] = problem
    return {**later, "raised": list(raised.values()), "cleared": list(cleared.values())}


@dataclass(frozen=True, slots=True)
class Targets:
    """Where documents go.

    Attributes:
        command: for a shell; None if there is none.
        url: http or https; None if there is none.
    """

    command: str | None
    url: str | None

    @classmethod
    def of(cls, command: str | None, url: str | None) -> Self:
        """Return the targets that the options name.

        Raises:
            click.UsageError: the command is empty, or the URL is not an http or https URL.
        """
        if command is not None and not command.strip():
            raise click.UsageError("--notify-command is empty")
        if url is not None:
            try:
                parts = urlsplit(url)
                is_right = parts.scheme in ("http", "https") and bool(parts.hostname)
                is_right = is_right and (parts.port is None or parts.port > 0)
            except ValueError:
                is_right = False
            if not is_right or any(character <= " " or character == "\x7f" for character in url):
                raise click.UsageError(
                    "--notify-url must be an http:// or https:// URL with a host"
                )
        return cls(command, url)

    @property
    def any_given(self) -> bool:
        return self.command is not None or self.url is not None


class Notifier:
    """Sends documents on a thread for each target.

    Args:
        limit_s: the time that a target has for one document.
        retry_s: the time until a document that could not be sent is tried again.
    """

    def __init__(
        self, targets: Targets, *, limit_s: float = _TIMEOUT_S, retry_s: float = _RETRY_S
    ) -> None:
        self._senders = []
        if targets.command is not None:
            command = targets.command
            self._senders.append(
                _Sender("the command", lambda d: run_command(command, d, limit_s), retry_s)
            )
        if targets.url is not None:
            url = targets.url
            name = urlsplit(url).hostname or "the address"
            self._senders.append(_Sender(name, lambda d: post(url, d, limit_s), retry_s))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        deadline = time.monotonic() + _SHUTDOWN_S
        for sender in self._senders:
            sender.stop()
        for sender in self._senders:
            sender.join(max(0.0, deadline - time.monotonic()))

    def send(self, document: Document) -> None:
        """Queue a document for each target without waiting."""
        for sender in self._senders:
            sender.send(document)

    def failures(self) -> list[str]:
        """Return a line about each failure since the last call."""
        return [line for sender in self._senders for line in sender.failures()]


class _Sender:
    def __init__(self, name: str, send: Any, retry_s: float) -> None:
        self._name = name
        self._send = send
        self._retry_s = retry_s
        self._changed = threading.Condition()
        self._next: Document | None = None
        self._is_stopped = False
        self._failures: list[str] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def send(self, document: Document) -> None:
        with self._changed:
            self._next = merged(self._next, document)
            self._changed.notify()

    def failures(self) -> list[str]:
        with self._changed:
            reported, self._failures = self._failures, []
        return reported

    def stop(self) -> None:
        with self._changed:
            self._is_stopped = True
            self._changed.notify()

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while True:
            with self._changed:
                while self._next is None and not self._is_stopped:
                    self._changed.wait()
                document, self._next = self._next, None
            if document is None:
                return
            if not document["raised"] and not document["cleared"]:
                continue
            reason = self._attempt(document)
            with self._changed:
                if reason is None:
                    continue
                later = self._next
                self._next = document if later is None else merged(document, later)
                self._failures = [f"a notification was not delivered to {self._name}: {reason}"]
                if self._is_stopped:
                    return
                self._changed.wait(self._retry_s)

    def _attempt(self, document: Document) -> str | None:
        """Send a document; return the reason of a failure, None after success."""
        try:
            self._send(document)
        except (OSError, ValueError, http.client.HTTPException, NotDelivered) as error:
            return error_text(error)
        return None


class NotDelivered(Exception):
    """A target refused a document or took too long."""


def run_command(command: str, document: Document, limit_s: float) -> None:
    """Run a command in a shell with a document on its standard input.

    Its output is dropped. After the time limit it is killed with everything that it started in its
    process group.

    Raises:
        NotDelivered: it failed, or took too long.
        OSError: it could not be started.
    """
    text = json.dumps(document).encode()
    with subprocess.Popen(
        command,
        shell=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        try:
            process.communicate(text, timeout=limit_s)
        except subprocess.TimeoutExpired:
            raise NotDelivered(f"it took longer than {limit_s:g} s") from None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    if process.returncode != 0:
        raise NotDelivered(f"it exited with code {process.returncode}")


def post(url: str, document: Document, limit_s: float) -> None:
    """POST a document to a URL. Redirections are not followed.

    Raises:
        NotDelivered: the response has no 2xx status, or came too late.
        OSError, HTTPException: the server could not be reached, or its response is not HTTP.
    """
    parts = urlsplit(url)
    deadline = time.monotonic() + limit_s
    connection = _connection(parts, limit_s)
    connection.connect()
    # A peer that sends single bytes slowly never exceeds the limit of one read.
    timer = threading.Timer(deadline - time.monotonic(), _shut_down, (connection.sock,))
    timer.daemon = True
    timer.start()
    try:
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        headers = {"Content-Type": "application/json", "Connection": "close"}
        connection.request("POST", path, json.dumps(document).encode(), headers)
        answer = connection.getresponse()
    except (OSError, http.client.HTTPException) as error:
        if time.monotonic() >= deadline:
            raise _too_late(limit_s) from error
        raise
    finally:
        timer.cancel()
        connection.close()
    if time.monotonic() >= deadline:
        # A truncated response looks like a complete one.
        raise _too_late(limit_s)
    if not 200 <= answer.status < 300:
        raise NotDelivered(f"the response was status {answer.status}")


def _connection(parts: SplitResult, limit_s: float) -> http.client.HTTPConnection:
    host = parts.hostname or ""
    if parts.scheme == "https":
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(host, parts.port, timeout=limit_s, context=context)
    return http.client.HTTPConnection(host, parts.port, timeout=limit_s)


def _too_late(limit_s: float) -> NotDelivered:
    return NotDelivered(f"no response within {limit_s:g} s")


def _shut_down(peer: socket.socket) -> None:
    """Wake the thread that waits for a response on this connection."""
    with suppress(OSError):
        peer.shutdown(socket.SHUT_RDWR)
