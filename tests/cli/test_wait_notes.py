"""Notes on standard error about what a command waits for."""

import itertools
from collections.abc import Iterator
from typing import cast

import pytest
from waiting import wait_until

from spindle.cli import wait_notes
from spindle.client.blocking.client import WireClient
from spindle.client.blocking.settings import HostPort
from spindle.common.errors import ApiError, ErrorCode


class WaitingClient:
    """A client that waits for a broker, then repeats a request, and so on."""

    def __init__(self) -> None:
        self._is_silent: Iterator[bool] = itertools.cycle((True, False))
        self.asked = 0
        self.retried_failure = ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "not created yet")

    def silent_addresses(self, after_s: float) -> list[HostPort]:
        self.asked += 1
        return [HostPort("broker", 9092)] if next(self._is_silent) else []


def test_each_note_is_printed_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(wait_notes, "_FIRST_AFTER_S", 0.001)
    monkeypatch.setattr(wait_notes, "_INTERVAL_S", 0.001)
    client = WaitingClient()
    with wait_notes.wait_notes(cast(WireClient, client)):
        wait_until(lambda: client.asked > 5)
    captured = capsys.readouterr()
    assert captured.err == "waiting for broker:9092 to answer\ntrying again: not created yet\n"
    assert captured.out == ""


def test_a_command_that_does_not_wait_prints_no_note(capsys: pytest.CaptureFixture[str]) -> None:
    with wait_notes.wait_notes(cast(WireClient, WaitingClient())):
        pass
    assert capsys.readouterr().err == ""
