"""Directories that go offline during an execution are told, and named again in its last line."""

from spindle.operations.directories import DrainTarget
from spindle.operations.events import Drained
from spindle.operations.execution.executor import DirectoryFailures

ALL = (1, 2)


def test_only_directories_that_fail_after_the_first_check_are_reported() -> None:
    failures = DirectoryFailures()
    assert failures.see({1: ["/old"]}, ALL) == []
    assert failures.see({1: ["/old", "/b"], 2: ["/a"]}, ALL) == ["1:/b", "2:/a"]
    assert failures.see({1: ["/old", "/b"], 2: ["/a"]}, ALL) == []
    assert failures.still_offline() == ["1:/b", "2:/a"]


def test_a_directory_that_comes_back_is_reported_again_when_it_fails_again() -> None:
    failures = DirectoryFailures()
    failures.see({1: ["/old"]}, ALL)
    assert failures.see({2: ["/a"]}, ALL) == ["2:/a"]
    assert failures.see({}, ALL) == []
    assert failures.still_offline() == []
    assert failures.see({1: ["/old"], 2: ["/a"]}, ALL) == ["1:/old", "2:/a"]
    assert failures.still_offline() == ["1:/old", "2:/a"]


def test_a_broker_that_is_silent_has_not_got_its_directories_back() -> None:
    failures = DirectoryFailures()
    failures.see({}, ALL)
    failures.see({2: ["/a"]}, ALL)
    assert failures.see({}, [1]) == []
    assert failures.still_offline() == ["2:/a"]
    assert failures.see({2: ["/a"]}, ALL) == []


def test_the_last_line_of_an_execution_names_what_failed_meanwhile() -> None:
    calm = Drained([], True, DrainTarget(1, "/b"))
    assert calm.text == "1:/b has no replicas and is cordoned"
    assert calm.facts == {"isCordoned": True, "wentOffline": []}
    end = Drained(["2:/a", "3:/c"], True, DrainTarget(1, "/b"))
    assert end.text == (
        "1:/b has no replicas and is cordoned; went offline meanwhile: 2:/a, 3:/c "
        "(see spindle disks list)"
    )
    assert end.facts == {"isCordoned": True, "wentOffline": ["2:/a", "3:/c"]}
