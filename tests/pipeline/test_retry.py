"""Dead letters that are decoded again: each is in one of the two tables, wherever a retry ends."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from export_doubles import FORMATS
from log_directory_files import ReplicaWriter
from upserts import Killed, Upserts, in_this_process, kill_at

from spindle.cli.main import run
from spindle.common.ids import TopicPartition
from spindle.pipeline.export import ExportConflict, ExportRefused, paths, retry_export
from spindle.pipeline.export import jobs as jobs_module
from spindle.pipeline.export import retry as retry_module
from spindle.pipeline.export.dead_letters import dead_letters_of
from spindle.pipeline.export.jobs import ExportJob
from spindle.pipeline.export.maintenance import compact_table
from spindle.pipeline.export.retry import Mended, RetryResult, listed_letters

OPTIONS = {
    "valueFormat": "json", "valueSchema": "id BIGINT", "columns": "id,partition,offset",
    "badRecords": "dead_letters",
}  # fmt: skip
BAD = (1, 4, 5)
APPENDS_ANEW: dict[str, Any] = {"mode": "append", "key": "binary", "recreated_topic": "append"}


@pytest.fixture(autouse=True)
def tasks_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    in_this_process(monkeypatch)


class Retries(Upserts):
    """An export of eight records in two partitions, of which three are dead letters."""

    def __init__(self, root: Path, table_format: Any) -> None:
        super().__init__(root, table_format)
        for number in range(8):
            value = f'{{"id": "text {number}"}}' if number in BAD else f'{{"id": {number}}}'
            self.send(b"k", value.encode(), number % 2)
        assert self.export().dead_letters == 3

    def export(self) -> Any:
        return self.run(OPTIONS, offsets=3, mode="append", key="binary")

    @property
    def job(self) -> ExportJob:
        options = {"logDirs": f"{self.root}/d*", "subscribe": "t", **OPTIONS}
        return ExportJob(self.format, str(self.path), options)

    def mended(self, *numbers: int) -> dict[tuple[str, int, int], Mended]:
        return {
            ("t", number % 2, number // 2): Mended(b"k", b'{"id": %d}' % number)
            for number in numbers
        }

    def retry(self, *numbers: int) -> RetryResult:
        return retry_export(self.job, self.mended(*numbers))

    def ids(self) -> list[int]:
        return sorted(row["id"] for row in self.rows())

    def dead(self) -> list[int]:
        letters = listed_letters(self.job)
        return sorted(letter.offset * 2 + letter.partition for letter in letters)

    def check(self) -> None:
        """Check that every record is in one of the tables, once."""
        assert sorted([*self.ids(), *self.dead()]) == list(range(8))


@pytest.fixture(params=FORMATS)
def retries(request: pytest.FixtureRequest, tmp_path: Path) -> Retries:
    return Retries(tmp_path, request.param)


@pytest.fixture
def in_delta(tmp_path: Path) -> Retries:
    return Retries(tmp_path, "delta")


def test_mended_letters_become_rows_and_the_others_stay(retries: Retries) -> None:
    result = retries.retry(1, 4)
    assert (result.retried, [letter.offset for letter in result.remaining]) == (2, [2])
    assert result.remaining[0].reason == 'value: id: "text 5" is not an integer'
    assert (retries.dead(), retries.ids()) == ([5], [0, 1, 2, 3, 4, 6, 7])
    assert retries.retry().retried == 0
    assert retries.retry(5).retried == 1
    assert retries.retry(5).retried == 0
    retries.check()
    # The exports continue as if nothing had been.
    retries.send(b"k", b'{"id": "bad"}')
    assert retries.export().dead_letters == 1
    assert retries.dead() == [8]


def test_a_retry_that_is_killed_before_any_of_its_steps_is_finished_by_the_next(
    retries: Retries,
) -> None:
    step = 0
    for number in BAD:
        killed = True
        while killed:
            try:
                with kill_at(step):
                    retries.retry(number)
                    killed = False
            except Killed:
                pass
            retries.retry()
            retries.check()
            step += 1
            if number not in retries.dead():
                break
    while retries.dead():
        retries.retry(*BAD)
        retries.check()
    assert step >= 6


@pytest.mark.parametrize("killed_table", ["t", "t_dead_letters"])
@pytest.mark.parametrize("is_made", [False, True])
def test_a_retry_that_is_killed_around_a_commit_is_finished_by_the_next(
    retries: Retries, killed_table: str, is_made: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill(commit: Callable[[], int]) -> int:
        if is_made:
            commit()
        raise Killed

    with monkeypatch.context() as patch:
        watch_commits(patch, killed_table, kill)
        with pytest.raises(Killed):
            retries.retry(*BAD)
    result = retries.retry(*BAD)
    has_moved = is_made or killed_table == "t_dead_letters"
    assert result.retried == (0 if has_moved else 3)
    retries.check()
    assert retries.dead() == []


def watch_commits(
    patch: pytest.MonkeyPatch, name: str, before: Callable[[Callable[[], int]], int]
) -> None:
    open_table = jobs_module.open_table

    def watched(table_format: Any, table: Any, catalog: Any = None) -> Any:
        opened: Any = open_table(table_format, table, catalog)
        if Path(table).name == name:
            commit = opened.commit
            opened.commit = lambda portion: before(lambda: commit(portion))
        return opened

    patch.setattr(jobs_module, "open_table", watched)


def test_of_two_retries_at_the_same_time_one_is_refused(
    retries: Retries, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:

        def second(commit: Callable[[], int]) -> int:
            patch.undo()
            in_this_process(patch)
            retries.retry(1)
            return commit()

        watch_commits(patch, "t", second)
        with pytest.raises(ExportConflict, match=r"t was changed by another export: "):
            retries.retry(1, 4)
    retries.check()
    assert retries.dead() == [4, 5]


def test_an_export_at_the_same_time_neither_loses_nor_repeats(
    retries: Retries, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:

        def export(commit: Callable[[], int]) -> int:
            patch.undo()
            in_this_process(patch)
            retries.send(b"k", b'{"id": 8}')
            retries.send(b"k", b'{"id": "bad"}', 1)
            retries.export()
            return commit()

        watch_commits(patch, "t", export)
        try:
            retries.retry(*BAD)
        except ExportConflict:
            retries.retry(*BAD)
    assert (retries.ids(), retries.dead()) == ([0, 1, 2, 3, 4, 5, 6, 7, 8], [9])


def test_letters_of_a_commit_that_is_not_finished_are_left_to_the_export(
    retries: Retries,
) -> None:
    def kill(commit: Callable[[], int]) -> int:
        raise Killed

    retries.send(b"k", b'{"id": "bad"}')
    with pytest.raises(Killed):
        retries.run(OPTIONS, commit=kill, mode="append", key="binary")
    result = retries.retry(*BAD, 8)
    assert (result.retried, result.waiting, retries.dead()) == (3, 1, [8])
    assert retries.export().rows == 0
    assert retries.retry(8).retried == 1
    assert retries.ids() == list(range(9))


def recreate_topic(retries: Retries) -> None:
    """Delete the topic, and create it again."""
    for partition, writer in enumerate(retries.writers):
        shutil.rmtree(writer.path)
        where = TopicPartition("t", partition)
        retries.writers[partition] = ReplicaWriter(writer.directory, where, topic_id=b"u" * 16)


def export_killed_before_its_commit(retries: Retries) -> None:
    def kill(commit: Callable[[], int]) -> int:
        raise Killed

    with pytest.raises(Killed):
        retries.run(OPTIONS, commit=kill, **APPENDS_ANEW)


def test_letters_of_an_earlier_topic_with_the_same_offsets_stay(retries: Retries) -> None:
    recreate_topic(retries)
    retries.send(b"k", b'{"id": "bad"}', 1)
    export_killed_before_its_commit(retries)
    result = retries.retry(1)
    assert (result.retried, result.waiting, retries.dead()) == (1, 1, [1, 4, 5])


def test_letters_of_an_earlier_topic_that_stay_decide_nothing_about_the_new_one(
    retries: Retries,
) -> None:
    for _ in range(2):
        retries.send(b"k", b'{"id": "bad"}', 1)
    retries.export()
    retries.retry(9)
    assert retries.dead() == [1, 4, 5, 11]
    recreate_topic(retries)
    for number in range(20, 26):
        retries.send(b"k", b'{"id": %d}' % number, 1)
    export_killed_before_its_commit(retries)
    retries.run(OPTIONS, **APPENDS_ANEW)
    assert retries.ids()[-6:] == list(range(20, 26))


def test_letters_are_found_after_a_compaction_of_their_table(in_delta: Retries) -> None:
    compact_table("delta", dead_letters_of(str(in_delta.path)))
    assert in_delta.retry(*BAD).retried == 3
    in_delta.check()


def test_a_plan_is_on_the_disk_before_its_letters_are_rows(
    in_delta: Retries, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[str] = []

    def sync_directory(path: Path) -> None:
        flushed.append(path.name)
        paths.sync_directory(path)

    monkeypatch.setattr(retry_module, "sync_directory", sync_directory)
    in_delta.retry(1)
    # The plan is in the first of these, and the first is in the second.
    assert flushed == ["_retry", "t_dead_letters"]


def test_a_plan_that_is_missing_is_named(
    in_delta: Retries, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill(commit: Callable[[], int]) -> int:
        raise Killed

    with monkeypatch.context() as patch:
        watch_commits(patch, "t_dead_letters", kill)
        with pytest.raises(Killed):
            in_delta.retry(*BAD)
    (plan,) = Path(dead_letters_of(str(in_delta.path))).glob("_retry/*.json")
    plan.rename(plan.with_suffix(".away"))
    with pytest.raises(ExportRefused, match=r"its plan .*\.json cannot be read"):
        in_delta.retry()
    assert in_delta.dead() == list(BAD), "nothing is removed without a plan"


def test_a_retry_that_meets_the_end_of_another_goes_on(
    in_delta: Retries, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:

        def second(commit: Callable[[], int]) -> int:
            read_plan = retry_module._read_plan

            def end_of_first(*args: Any) -> Any:
                patch.setattr(retry_module, "_read_plan", read_plan)
                in_delta.retry()
                return read_plan(*args)

            version = commit()
            patch.undo()
            in_this_process(patch)
            patch.setattr(retry_module, "_read_plan", end_of_first)
            return version

        watch_commits(patch, "t", second)
        assert in_delta.retry(1, 4).retried == 2
    in_delta.check()


def test_a_table_of_dead_letters_that_was_removed_can_be_retried_again(in_delta: Retries) -> None:
    retries = in_delta
    retries.retry(1)
    shutil.rmtree(dead_letters_of(str(retries.path)))
    retries.send(b"k", b'{"id": "bad"}')
    retries.export()
    with pytest.raises(ExportRefused, match=r"then write .* into this file") as refused:
        retries.retry(8)
    (plan,) = re.findall(r"its plan (\S+) cannot", str(refused.value))
    (text,) = re.findall(r"then write (.*) into this file", str(refused.value))
    Path(plan).parent.mkdir()
    Path(plan).write_text(text)
    assert (retries.retry(8).retried, retries.dead()) == (1, [])


def test_dead_letters_of_an_upsert_are_refused(in_delta: Retries) -> None:
    job = ExportJob(
        in_delta.format, in_delta.path, in_delta.job.options, {"mode": "upsert", "key": "id"}
    )
    with pytest.raises(ExportRefused, match="send the mended records to the topic again"):
        retry_export(job)


def test_the_command_lists_letters_takes_mended_ones_and_says_what_is_left(
    in_delta: Retries, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["export", "retry", "t", str(in_delta.path), "--log-dir", f"{tmp_path}/d*"]
    for name in ("valueFormat", "valueSchema"):
        words += ["-o", f"{name}={OPTIONS[name]}"]
    words += ["--columns", OPTIONS["columns"]]
    assert run([*words, "--list"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["PARTITION", "OFFSET", "TIME", "KEY", "VALUE", "REASON"]
    assert len(lines) == 3
    assert run([*words, "--list", "--json"]) == 0
    letters = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for letter in letters[:2]:
        letter["value"] = '{"id": 100}'
    mended = tmp_path / "mended"
    mended.write_text("\n".join(map(json.dumps, letters)))
    assert run([*words, "--mended", str(mended)]) == 3
    retried, bad, reason = capsys.readouterr().out.splitlines()
    assert (retried, bad) == ("retried: 2 dead letters became rows", "still bad: 1 dead letter")
    assert reason.startswith('  1 x value: id: "text ')
    mended.write_text('{"topic": "t"}')
    assert run([*words, "--mended", str(mended)]) == 1
    assert "mended, line 1: want a letter as --list --json prints it" in capsys.readouterr().err


def test_bytes_that_are_no_text_are_listed_as_base64(
    in_delta: Retries, capsys: pytest.CaptureFixture[str]
) -> None:
    in_delta.send(None, b"\xff")
    in_delta.export()
    words = ["export", "retry", "t", str(in_delta.path), "--log-dir", f"{in_delta.root}/d*"]
    assert run([*words, "--list", "--json"]) == 0
    letters = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [letter["value"] for letter in letters if letter["key"] is None] == [{"base64": "/w=="}]
    uri = Path(dead_letters_of(str(in_delta.path))).as_uri()
    assert DeltaTable(uri).to_pyarrow_table().num_rows == 4


def test_a_retry_of_a_table_that_does_not_exist_names_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["export", "retry", "t", str(tmp_path / "none"), "--log-dir", f"{tmp_path}/d*"]
    for further in (["--list"], []):
        assert run([*words, *further]) == 1
        error = capsys.readouterr().err
        assert f"there is no delta table {tmp_path}/none, nor one of its dead letters" in error
