"""The metadata shell: the files that it reads, its paths and patterns, its commands."""

import io
import sys
from pathlib import Path

import pytest

from spindle.cli.main import run
from spindle.cli.shell.commands import Shell, in_columns, run_command
from spindle.cli.shell.nodes import Directory
from spindle.cli.shell.paths import completions, components, expression
from spindle.common.ids import OffsetAndEpoch
from spindle.metadata_log.encoding import encode_records
from spindle.metadata_log.snapshots import SnapshotInfo, encode_snapshot, snapshot_file_name
from spindle.protocol.message import Message
from spindle.protocol.messages.metadata_records import (
    ConfigRecord,
    FeatureLevelRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
)
from spindle.protocol.records.builder import SimpleRecord, build_batch

LEVEL = FeatureLevelRecord(name="metadata.version", feature_level=30)
TREE = Directory(
    lambda: {
        "b": Directory(lambda: {"10": "ten", "2": "two", "x y": "blank"}),
        "a": "leaf",
        "c*": Directory(dict),
    }
)


def topic(number: int) -> TopicRecord:
    return TopicRecord(name=f"t{number}", topic_id=bytes([number] * 16))


def batch(offset: int, *records: Message) -> bytes:
    values = [SimpleRecord(None, value, 1_000) for value in encode_records(records)]
    return build_batch(values, base_offset=offset, leader_epoch=2)


def write_log(folder: Path) -> Path:
    """Topics 0 to 5 by offset: a snapshot of 0 and 1, segments from 0 and from 4 on."""
    folder.mkdir()
    (folder / f"{0:020d}.log").write_bytes(batch(0, LEVEL, topic(1)) + batch(2, topic(2), topic(3)))
    (folder / f"{4:020d}.log").write_bytes(batch(4, topic(4)) + batch(5, topic(5)) + b"torn")
    values = encode_records((LEVEL, topic(1), topic(2)))
    parts = encode_snapshot(values, SnapshotInfo(1_000, 0, None), epoch=2, now_ms=1_000)
    (folder / snapshot_file_name(OffsetAndEpoch(3, 2))).write_bytes(b"".join(parts))
    return folder


def topics(path: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    assert (
        run(["kafka", "metadata-shell", "--snapshot", str(path), "ls", "/image/topics/byName"]) == 0
    )
    return capsys.readouterr().out.split()


# -- reading


def test_a_folder_is_its_newest_snapshot_and_what_follows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_log(tmp_path / "__cluster_metadata-0")
    everything = ["t1", "t2", "t3", "t4", "t5"]
    assert topics(tmp_path, capsys) == everything
    assert topics(folder, capsys) == everything
    assert topics(folder / f"{4:020d}.log", capsys) == everything
    assert topics(folder / f"{0:020d}.log", capsys) == ["t1", "t2", "t3"]
    assert topics(folder / snapshot_file_name(OffsetAndEpoch(3, 2)), capsys) == ["t1", "t2"]
    (folder / snapshot_file_name(OffsetAndEpoch(3, 2))).rename(
        folder / snapshot_file_name(OffsetAndEpoch(4, 2))
    )
    (folder / f"{0:020d}.log").unlink()
    assert topics(folder, capsys) == ["t1", "t2", "t4", "t5"]


def test_files_that_are_no_metadata(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_log(tmp_path / "log")
    segment = folder / f"{4:020d}.log"
    data = bytearray(segment.read_bytes())
    data[-10] ^= 1
    segment.write_bytes(data)
    contradiction = tmp_path / "other" / f"{0:020d}.log"
    contradiction.parent.mkdir()
    contradiction.write_bytes(batch(0, LEVEL, UnregisterBrokerRecord(broker_id=7)))
    (tmp_path / "empty").mkdir()
    gap = write_log(tmp_path / "gap")
    (gap / f"{0:020d}.log").unlink()
    (tmp_path / "short.checkpoint").write_bytes(b"x")
    for path, message in (
        (segment, "00000000000000000004.log"),
        (contradiction, "record for broker 7"),
        (gap, "04.log at byte 0: what is before it ends at offset 3"),
        (tmp_path / "empty", "holds no metadata log"),
        (tmp_path / "short.checkpoint", "short.checkpoint"),
        (tmp_path / "nowhere", "No such file or directory"),
        (Path("/dev/null"), "is not a snapshot, segment or folder"),
    ):
        assert run(["kafka", "metadata-shell", "-s", str(path), "ls"]) == 1, path
        captured = capsys.readouterr()
        assert message in captured.err, path
        assert captured.out == ""


def test_values_of_all_kinds_are_leaves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / f"{0:020d}.log"
    config = ConfigRecord(resource_type=4, resource_name="", name="num.io.threads", value="v")
    path.write_bytes(batch(0, LEVEL, config))
    leaves = ["configs/BROKER/num.io.threads", "features/metadataVersion", "provenance"]
    assert (
        run(["kafka", "metadata-shell", "-s", str(path), "cat", *(f"/image/{x}" for x in leaves)])
        == 0
    )
    assert capsys.readouterr().out.splitlines() == [
        "v",
        "Optional[4.3-IV0]",
        "offset 1, epoch 2, time 1970-01-01T00:00:01Z[UTC]",
    ]


def test_verifiers_of_scram_are_not_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / f"{0:020d}.log"
    credential = UserScramCredentialRecord(
        name="alice",
        mechanism=1,
        salt=b"salt",
        stored_key=b"stored",
        server_key=b"server",
        iterations=8192,
    )
    log.write_bytes(batch(0, LEVEL, credential))
    path = "/image/scram/SCRAM-SHA-256/alice"
    assert run(["kafka", "metadata-shell", "--snapshot", str(log), "cat", path]) == 0
    assert capsys.readouterr().out == (
        "ScramCredentialData(salt=[hidden], storedKey=[hidden], serverKey=[hidden], "
        "iterations=8192)\n"
    )


@pytest.mark.parametrize("name", ["listener.name.x.ssl.keystore.password", "of.somebody.else"])
def test_passwords_of_brokers_are_not_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    path = tmp_path / f"{0:020d}.log"
    config = ConfigRecord(resource_type=4, resource_name="1", name=name, value="the secret")
    path.write_bytes(batch(0, LEVEL, config))
    assert (
        run(["kafka", "metadata-shell", "-s", str(path), "cat", f"/image/configs/BROKER:1/{name}"])
        == 0
    )
    assert capsys.readouterr().out == "[hidden]\n"


# -- paths


@pytest.mark.parametrize(
    ("path", "at", "names"),
    [
        ("/a//b/", "/x", ["a", "b"]),
        ("b", "/x", ["x", "b"]),
        ("..", "/x/y", ["x"]),
        ("../../..", "/x", []),
        (".", "/", []),
    ],
)
def test_paths_are_split_into_components(path: str, at: str, names: list[str]) -> None:
    assert components(path, at) == names


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("a*", ["a", "abc"], ["ba"]),
        ("?", ["a", "("], ["", "ab"]),
        ("{a,b*}c", ["ac", "bxc"], ["c", "a"]),
        ("a.*", ["a.b"], ["ab"]),
        (r"\*?", ["*a"], ["aa"]),
        ("x,y*", ["x,yz"], ["x"]),
    ],
)
def test_patterns_match_as_in_a_shell(pattern: str, matching: list[str], other: list[str]) -> None:
    compiled = expression(pattern)
    assert compiled is not None
    assert [name for name in (*matching, *other) if compiled.fullmatch(name)] == matching


@pytest.mark.parametrize("name", ["plain", "a.b", "{a", "{a,{b}}", "user(x)"])
def test_names_that_stand_for_themselves(name: str) -> None:
    assert expression(name) is None


def test_tab_completes_paths_of_the_tree() -> None:
    assert completions(TREE, "", "/") == ["a", "b/", "c*/"]
    assert completions(TREE, "b/1", "/") == ["b/10"]
    assert completions(TREE, "/b/", "/c*") == ["/b/10", "/b/2", "/b/x y"]
    assert completions(TREE, "a/", "/") == []
    assert completions(TREE, "nowhere/x", "/") == []


# -- commands


def said(*words: str, shell: Shell | None = None) -> list[str]:
    return list(run_command(shell or Shell(TREE), words, is_interactive=True))


def test_a_walk_through_the_tree() -> None:
    shell = Shell(TREE)
    assert said("ls", shell=shell) == ["a", "b", "c*"]
    assert said("cd", "b", shell=shell) == []
    assert said("pwd", shell=shell) == ["/b"]
    assert said("ls", "", shell=shell) == ["10", "2", "x y"]
    assert said("cat", "2", "x y", "../a", shell=shell) == ["two", "blank", "leaf"]
    assert said("cd", "2", shell=shell) == ["cd: 2: not a directory."]
    assert said("cd", "nowhere", shell=shell) == ["cd: nowhere: no such directory."]
    assert said("cd", shell=shell) == []
    assert said("pwd", shell=shell) == ["/"]
    assert said("exit", shell=shell) == []
    assert shell.is_over


def test_ls_find_and_tree_show_nested_paths() -> None:
    assert said("ls", "b", "a", "c\\*") == ["a", "", "b:", "10", "2", "x y"]
    assert said("ls", "b", "b") == ["b:", "10", "2", "x y", "", "b:", "10", "2", "x y"]
    assert said("find", "b", "a") == ["b", "b/10", "b/2", "b/x y", "a"]
    assert said("find", "/")[:2] == ["/", "/a"]
    assert said("tree", "/") == [
        *("a:", "  leaf", "b:", "  10:", "    ten", "  2:", "    two", "  x y:", "    blank"),
        "c*:",
    ]
    assert said("cat", "b", "z") == [
        "cat: b: Is a directory",
        "cat: z: No such file or directory.",
    ]
    assert said("tree", "z") == ["tree: z: No such file or directory."]
    assert said("ls", "z") == ["ls: z: no such file or directory."]


def test_unknown_commands_are_refused() -> None:
    assert said("lz")[0].startswith("invalid choice: 'lz' (choose from 'cat', 'cd',")
    assert said("cat") == ["too few arguments"]
    assert said("pwd", "x", "y") == ["unrecognized arguments: 'x y'"]
    assert said() == said("") == []
    assert list(run_command(Shell(TREE), ["cd", "b"], is_interactive=False)) == [
        "invalid choice: 'cd' (choose from 'cat', 'find', 'ls', 'tree')"
    ]
    assert said("man", "nothing") == [
        "man: unknown command nothing. Type help to get a list of commands."
    ]
    assert said("man", "ls")[0] == "ls: List metadata nodes."
    assert all(any(name in line for line in said("help")) for name in ("cat", "tree", "history"))


def test_history_lists_the_last_commands() -> None:
    shell = Shell(TREE, history=["ls", "pwd", "history"])
    assert said("history", "2", shell=shell) == ["    1  pwd", "    2  history"]
    assert len(said("history", shell=shell)) == 3
    assert said("history", "x", shell=shell) == ["history: x: not a number"]


def test_names_are_arranged_in_columns_of_the_width() -> None:
    names = ["a", "bb", "ccc", "d", "e"]
    assert list(in_columns(names, 12)) == ["a   ccc  e", "bb  d"]
    assert list(in_columns(names, None)) == list(in_columns(names, 5)) == names
    assert list(in_columns([], 80)) == []


def test_commands_from_standard_input_are_run_until_exit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_log(tmp_path / "log")
    lines = 'ls\n\ncd image/topics\nls "byName\n find byName\nhistory 1\nexit\nls\n'
    monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
    assert run(["kafka", "metadata-shell", "-s", str(tmp_path / "log")]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("[ Spindle metadata shell")
    assert said[1:4] == ["image", "local", 'ls "byName: No closing quotation']
    assert said[4] == "byName"
    assert said[-1] == "    4  history 1"
