"""An export that follows topics: it outlasts brokers that are away, conflicts and failed tasks."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from export_doubles import NO_SPARK
from log_directory_files import TOPIC_ID

from spindle.client.errors import ConnectionLost, SaslFailed
from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicPartition
from spindle.pipeline.errors import DataLoss
from spindle.pipeline.export import export_parquet
from spindle.pipeline.export.following import FollowSettings, follow_export
from spindle.pipeline.export.jobs import ExportJob
from spindle.pipeline.export.model import (
    ExportConflict,
    ExportedPartition,
    ExportFailed,
    ExportRefused,
    ExportResult,
)
from spindle.pipeline.user_errors import ReportedCause

ADDED = ExportResult(
    "", None, 1, 0, 0, (ExportedPartition(TopicPartition("topic", 0), TOPIC_ID, 0, 1, 1),)
)
AWAY = ConnectionLost("no broker could be reached")
LOST_IN_TASK = ExportFailed(ReportedCause("spindle.client.errors.ConnectionLost", "reset"))
NOT_LEADER = ExportFailed(
    ReportedCause("spindle.common.errors.ApiError", "NOT_LEADER_OR_FOLLOWER: topic-0")
)
CONFLICT = ExportConflict("another export was first")
NOT_READY = ApiError(ErrorCode.LEADER_NOT_AVAILABLE, "topic-0")


class Pauses(threading.Event):
    """An event that is never waited for; it notes the pauses."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.seconds.append(timeout)
        return self.is_set()


class Follow:
    """Follows a job whose runs and questions have the given outcomes, then always succeed."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        runs: list[Exception | None] | None = None,
        questions: list[Exception | None] | None = None,
        **settings: Any,
    ) -> None:
        self.begins: list[str | None] = []
        self.told: list[str] = []
        self.pauses = Pauses()
        next_run, next_question = outcomes(runs), outcomes(questions)

        def run(job: ExportJob, _: object) -> ExportResult:
            self.begins.append(job.settings.get("begin"))
            next_run()
            return ADDED

        def pending_bytes(_: ExportJob) -> int:
            next_question()
            return 1

        monkeypatch.setattr(ExportJob, "run", run)
        monkeypatch.setattr(ExportJob, "pending_bytes", pending_bytes)
        job = ExportJob("parquet", "/table", {}, {"begin": "latest"})
        chosen = FollowSettings(**{"target_bytes": 1, **settings})
        spark: Any = None
        self.results: Iterator[ExportResult] = follow_export(
            spark, job, chosen, self.pauses, self.told.append
        )


class Signalled:
    """Runs that end with a signal to this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, signals: list[int]) -> None:
        left = list(signals)

        def run(job: ExportJob, _: object) -> ExportResult:
            if left:
                os.kill(os.getpid(), left.pop(0))
            return replace(ADDED, path=str(job.table), version=7, dead_letters=2)

        monkeypatch.setattr(ExportJob, "run", run)
        monkeypatch.setattr(ExportJob, "pending_bytes", lambda job: 1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_follow_ends_by_a_signal_with_the_sum_of_its_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], number: int
) -> None:
    Signalled(monkeypatch, [signal.SIGCONT, number])
    before = [signal.getsignal(other) for other in (signal.SIGINT, signal.SIGTERM)]
    settings = FollowSettings(target_bytes=1, poll_ms=1)
    total = export_parquet(NO_SPARK, "/table", {}, follow=settings)
    assert (total.rows, total.dead_letters, total.version) == (2, 4, 7)
    assert len(total.partitions) == 2
    first, *lines = capsys.readouterr().err.splitlines()
    assert first == "/table: waits for records and commits them, until Ctrl-C or SIGTERM"
    assert [line.partition(" ")[2] for line in lines] == [
        "/table: 1 row, 2 dead letters, version 7"
    ] * 2
    assert before == [signal.getsignal(other) for other in (signal.SIGINT, signal.SIGTERM)]


def test_follow_in_another_thread_names_what_can_be_stopped_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(export_parquet, NO_SPARK, "/table", {}, follow=True)
        with pytest.raises(ValueError, match=r"follow_export\(spark, job, stopped=EVENT\)"):
            call.result()


def outcomes(given: list[Exception | None] | None) -> Callable[[], None]:
    left = list(given or [])

    def act() -> None:
        outcome = left.pop(0) if left else None
        if outcome is not None:
            raise outcome

    return act


def test_an_export_that_follows_begins_at_the_end_only_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    follow = Follow(monkeypatch)
    assert [next(follow.results).rows, next(follow.results).rows] == [1, 1]
    assert follow.begins == ["latest", "earliest"]


def test_an_outage_of_any_length_is_waited_for_with_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outage: list[Exception | None] = [None, *[AWAY, NOT_READY] * 20]
    follow = Follow(monkeypatch, [None, *[AWAY] * 7], outage)
    assert next(follow.results) == next(follow.results) == ADDED
    assert (
        follow.told
        == ["the brokers do not answer, and are asked again: no broker could be reached"] * 2
    )
    assert max(filter(None, follow.pauses.seconds)) == 30
    assert follow.pauses.seconds[:4] == [1, 1, 1, 2]


@pytest.mark.parametrize("failure", [CONFLICT, LOST_IN_TASK, NOT_LEADER])
def test_a_run_that_failed_for_a_passing_reason_is_made_again(
    monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    follow = Follow(monkeypatch, [failure] * 4)
    assert next(follow.results) == ADDED
    assert follow.told == [f"the run failed, and is made again: {failure}"] * 4
    follow = Follow(monkeypatch, [failure] * 5)
    with pytest.raises(type(failure)):
        next(follow.results)


def test_a_failed_task_is_counted_apart_from_the_outage_that_failed_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    follow = Follow(monkeypatch, [LOST_IN_TASK, *[AWAY] * 20, LOST_IN_TASK, *[AWAY] * 20])
    assert next(follow.results) == ADDED


@pytest.mark.parametrize(
    "failure",
    [
        ExportFailed(ReportedCause("spindle.pipeline.schemas.rows.BadRecord", "bad")),
        ExportFailed(
            ReportedCause("spindle.common.errors.ApiError", "TOPIC_AUTHORIZATION_FAILED: no")
        ),
        ExportRefused("a gap"),
        DataLoss("gone"),
        SaslFailed("wrong password"),
        ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "deleted"),
        ValueError("wrong option"),
    ],
)
def test_a_failure_that_will_not_pass_ends_the_export(
    monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    follow = Follow(monkeypatch, [failure])
    with pytest.raises(type(failure)):
        next(follow.results)
    follow = Follow(monkeypatch, [], [None, failure])
    assert next(follow.results) == ADDED
    with pytest.raises(type(failure)):
        next(follow.results)
    assert follow.told == []


def test_brokers_that_never_answered_are_an_error_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConnectionLost):
        next(Follow(monkeypatch, [], [AWAY]).results)


def test_the_waiting_ends_when_the_export_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    follow = Follow(monkeypatch, [None, AWAY])
    next(follow.results)
    follow.pauses.set()
    assert list(follow.results) == []
