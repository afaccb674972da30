"""Work of followers on several logs of a directory: one damaged log does not stop the others."""

from typing import Any

import pytest

from spindle.common.errors import CorruptLog
from spindle.replicas import follower_appends
from spindle.replicas.follower_appends import apply_leader_answers, begin_to_follow_all


class FakeLog:
    """A log whose work fails with an error, if it has one."""

    truncation_count = 0

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error


@pytest.fixture(autouse=True)
def _work(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(log: FakeLog, *_: Any) -> str:
        if log.error is not None:
            raise log.error
        return "done"

    monkeypatch.setattr(follower_appends, "begin_to_follow", work)
    monkeypatch.setattr(follower_appends, "apply_leader_answer", work)


def results(*logs: Any) -> list[list[Any]]:
    store: Any = None
    answer: Any = None
    begun: Any = begin_to_follow_all(store, logs, 0)
    applied: Any = apply_leader_answers(store, [(log, answer) for log in logs], 0)
    return [begun, applied]


def test_a_log_with_malformed_bytes_fails_alone() -> None:
    damage = CorruptLog("/d/t-0/x", 7, "garbage")
    for outcomes in results(FakeLog(), FakeLog(damage), FakeLog()):
        assert outcomes == ["done", damage, "done"]


def test_an_error_of_the_disk_fails_all() -> None:
    with pytest.raises(OSError, match="gone"):
        results(FakeLog(), FakeLog(OSError("gone")))
