"""`spindle disks rebuild`: the end of each rebuild, refusals, Ctrl-C, and other screens."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from disk_reports import MIB, disk, report

from spindle.cli.disks.documents import report_document
from spindle.cli.disks.list_command import list_lines
from spindle.cli.disks.rates import BrokerRates
from spindle.cli.disks.screen import BrokerPicture, watch_lines
from spindle.cli.main import run
from spindle.client.disks import RebuildView
from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicPartition
from spindle.operations import rebuild_run

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
COPYING = RebuildView(T0, "/d/1", "copying", 8 * MIB, 2 * MIB, 40, None)
DONE = replace(COPYING, state="done", copied_bytes=8 * MIB, lag=-1)
FAILED = replace(DONE, state="failed", failure="nothing was copied for 600 s")


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> "Broker":
    answers = Broker()
    monkeypatch.setattr(rebuild_run, "rebuild_replicas", answers.begin)
    monkeypatch.setattr(rebuild_run, "_asked", answers.look)
    monkeypatch.setattr("spindle.operations.rebuild_run.time.sleep", lambda _: None)
    return answers


class Broker:
    """Refuses what it has a refusal for, and answers each look with the next views."""

    def __init__(self) -> None:
        self.refusals: dict[TopicPartition, ApiError | None] = {}
        self.looks: list[Sequence[RebuildView]] = []
        self.asked: list[tuple[list[TopicPartition], bool]] = []

    def begin(self, client: Any, broker: int, wanted: Any, *, is_cancellation: bool) -> Any:
        self.asked.append((list(wanted), is_cancellation))
        return {where: self.refusals.get(where) for where in wanted}

    def look(self, client: Any, broker: int, sleep: Any) -> dict[TopicPartition, RebuildView]:
        if not self.looks:
            raise KeyboardInterrupt
        return {look.partition: look for look in self.looks.pop(0)}


def rebuild(*arguments: str) -> int:
    return run(("disks", "rebuild", "2", *arguments, "-b", "127.0.0.1:1"))


def test_the_command_shows_each_state_and_ends_when_the_replica_is_in_sync(
    broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    broker.looks = [[replace(COPYING, state="leaving the ISR")], [COPYING], [COPYING], [DONE]]
    assert rebuild("t-0") == 0
    assert capsys.readouterr().out.splitlines() == [
        "t-0: leaving the ISR",
        "t-0: copying: 2.0 MiB of about 8.0 MiB, 40 records behind",
        "t-0: rebuilt and in the ISR again, 8.0 MiB",
    ]


def test_a_refusal_or_a_failure_of_one_replica_is_exit_code_1(
    broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    broker.refusals = {T1: ApiError(ErrorCode.INVALID_REQUEST, "broker 2 is the leader of t-1")}
    broker.looks = [[DONE]]
    assert rebuild("t-0", "t-1") == 1
    assert "t-1: refused: broker 2 is the leader of t-1" in capsys.readouterr().err
    broker.looks = [[FAILED]]
    assert rebuild("t-0") == 1
    assert "t-0: failed: nothing was copied for 600 s" in capsys.readouterr().err
    broker.looks = [[]]
    assert rebuild("t-0") == 1
    assert "t-0: failed: the broker was restarted" in capsys.readouterr().err


def test_programs_get_one_document(broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    broker.refusals = {T1: ApiError(ErrorCode.INVALID_REQUEST, "no")}
    broker.looks = [[COPYING], [DONE]]
    assert rebuild("t-0", "t-1", "--json") == 1
    assert json.loads(capsys.readouterr().out) == {
        "broker": 2,
        "replicas": [
            {
                "topic": "t",
                "partition": 1,
                "state": "refused",
                "formerBytes": None,
                "copiedBytes": None,
                "error": "no",
            },
            {
                "topic": "t",
                "partition": 0,
                "state": "done",
                "formerBytes": 8 * MIB,
                "copiedBytes": 8 * MIB,
                "error": None,
            },
        ],
    }


def test_ctrl_c_prints_which_rebuilds_continue(
    broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    broker.looks = [[COPYING]]
    assert rebuild("t-0") == 130
    error = capsys.readouterr().err
    assert "Broker 2 continues the rebuild: `spindle disks watch` shows it" in error
    assert "`spindle disks rebuild 2 t-0 --cancel` ends it" in error


def test_a_cancellation_does_not_wait(broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    assert rebuild("t-0", "--cancel") == 0
    assert broker.asked == [([T0], True)]
    assert capsys.readouterr().out == "Cancelled: t-0.\n"


def test_a_wrong_replica_is_a_wrong_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert rebuild("orders") == 2
    assert "'orders' is not TOPIC-PARTITION" in capsys.readouterr().err


def test_the_list_and_the_screen_show_a_rebuild() -> None:
    shown = report(disk())
    assert shown.disks is not None
    shown = replace(shown, disks=replace(shown.disks, rebuilds=(COPYING, FAILED)))
    assert list_lines([shown], 0, None)[1].endswith("online, 1 rebuild")
    assert shown.disks is not None
    disks, moves = BrokerRates().add(shown.disks)
    lines = [line.text for line in watch_lines([BrokerPicture(shown, disks, moves)], 0)]
    assert "  t-0 is rebuilt in /d/1: copying: 2.0 MiB of about 8.0 MiB, 40 records behind" in lines
    documents = report_document(shown)["rebuilds"]
    assert [(document["state"], document["lag"]) for document in documents] == [
        ("copying", 40),
        ("failed", None),
    ]
