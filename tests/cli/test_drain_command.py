"""`spindle drain` on a node of `spindle up`, and the file that a killed drain leaves."""

import json
from pathlib import Path

import pytest

from spindle.cli.drain.drain_file import DrainFile, open_drain_file
from spindle.cli.failure import CommandFailed
from spindle.cli.main import run


def test_the_file_of_a_drain_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    path = tmp_path / "drain.json"
    assert open_drain_file(path, "id", "2:/d") == DrainFile(path, "id", "2:/d")
    saved = DrainFile(path, "id", "2:/d", ["/d"], ["t"], [1, 2], '{"version":1}')
    saved.save()
    assert open_drain_file(path, "id", "2:/d") == saved
    assert [each.name for each in tmp_path.iterdir()] == ["drain.json"]
    saved.remove()
    assert not path.exists()


def test_the_file_of_another_drain_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "drain.json"
    DrainFile(path, "id", "2:/d").save()
    for cluster_id, place in (("id", "3"), ("other", "2:/d")):
        with pytest.raises(CommandFailed, match="is of the drain of 2:/d in cluster id, not of"):
            open_drain_file(path, cluster_id, place)
    for text in ("", "[1]", '{"place": "2:/d"}', '{"unknown": 1}'):
        path.write_text(text)
        with pytest.raises(CommandFailed, match="is not the file of a drain"):
            open_drain_file(path, "id", "2:/d")


def directories(capsys: pytest.CaptureFixture[str]) -> dict[str, tuple[int, bool]]:
    """Return the number of replicas of each directory, and whether it is cordoned."""
    capsys.readouterr()
    assert run(("disks", "list", "--json")) == 0
    (broker,) = json.loads(capsys.readouterr().out)["brokers"]
    return {
        each["path"]: (each["partitions"], bool(each["cordons"])) for each in broker["directories"]
    }


def test_a_directory_is_drained_and_cordoned_and_cancelling_needs_a_drain(
    bootstrap: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(("topic", "create", "drained", "-p", "6", "-r", "1")) == 0
    before = directories(capsys)
    path = max(before)
    assert before[path][0] > 0
    state = ("--state", str(tmp_path / "drain.json"))
    words = ("drain", f"1:{path}", "--capacity", "1GiB", "--parallel", "1", *state)
    assert run(words) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[-1] == f"1:{path} has no replicas and is cordoned"
    assert directories(capsys)[path] == (0, True)
    assert sum(count for count, _ in directories(capsys).values()) == sum(
        count for count, _ in before.values()
    )
    assert not list(tmp_path.iterdir())
    assert run((*words, "--cancel")) == 1
    assert "there is no drain to cancel" in capsys.readouterr().err
    assert run(("disks", "uncordon", "1", path)) == 0


def test_a_drain_that_is_not_possible_changes_nothing(
    bootstrap: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(("topic", "create", "stuck", "-p", "1", "-r", "1")) == 0
    capsys.readouterr()
    assert run(("drain", "1", "--state", str(tmp_path / "drain.json"))) == 1
    error = capsys.readouterr().err
    assert "the plan can use 0 brokers" in error
    assert "Nothing has changed." in error
    assert not any(is_cordoned for _, is_cordoned in directories(capsys).values())
