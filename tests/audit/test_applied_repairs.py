"""`spindle audit --apply`: it moves files that a broker makes again, and leaves all else alone."""

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from broker_directories import CONFIG, NOW_MS, PLAIN, TRANSACTIONAL, clean_directory
from log_directory_files import corrupt_byte

from spindle.audit import applied_repairs
from spindle.audit.run import run_audit
from spindle.cli.main import run
from spindle.common.filesystem import OsFileSystem
from spindle.disks.directory_store import DirectoryStore

HOLD_LOCK = (
    "import fcntl, sys; file = open(sys.argv[1], 'w'); fcntl.lockf(file, fcntl.LOCK_EX); "
    "print('held', flush=True); sys.stdin.read()"
)


class KilledRun(BaseException):
    """Nothing handles it, as nothing handles a kill."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory with damage that a broker repairs if the files are gone."""
    path = clean_directory(tmp_path / "d1")
    plain = sorted((path / str(PLAIN)).glob("*.index"))
    plain[0].write_bytes(b"123")
    plain[1].unlink()
    corrupt_byte(sorted((path / str(PLAIN)).glob("*.timeindex"))[0], 5)
    aborted = sorted((path / str(TRANSACTIONAL)).glob("*.txnindex"))[0]
    aborted.write_bytes(aborted.read_bytes()[:-5])
    (path / "replication-offset-checkpoint").write_text("broken")
    return path


def applied(root: Path, quarantine: Path) -> int:
    return run(["audit", str(root), "-j", "1", "--apply", "--quarantine", str(quarantine)])


def started_and_stopped(root: Path) -> None:
    """Open and close the logs as a broker does."""
    (root / ".kafka_cleanshutdown").unlink(missing_ok=True)
    store = DirectoryStore(OsFileSystem(), str(root))
    store.load(lambda topic: CONFIG, NOW_MS * 2)
    store.settle_missing(())
    for log in store.all_logs():
        log.update_high_watermark(log.log_end_offset)
    store.close(2)


def contents(folder: Path) -> list[bytes]:
    return sorted(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def damaged_files(root: Path) -> list[bytes]:
    """Return the contents of the files that the repairs move."""
    plain, aborted = root / str(PLAIN), sorted((root / str(TRANSACTIONAL)).glob("*.txnindex"))[0]
    paths = (
        sorted(plain.glob("*.index"))[0],
        sorted(plain.glob("*.timeindex"))[0],
        aborted,
        aborted.with_suffix(".index"),
        root / "replication-offset-checkpoint",
    )
    return sorted(path.read_bytes() for path in paths)


def test_files_that_a_broker_makes_again_are_moved_and_nothing_is_lost(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = damaged_files(root)
    logs = contents_of_logs(root)
    assert applied(root, tmp_path / "q") == 0
    text = capsys.readouterr().out
    assert "5 files moved; 0 findings left to you" in text
    assert "Start the broker of node 1" in text
    assert contents(tmp_path / "q") == expected
    started_and_stopped(root)
    assert contents_of_logs(root) == logs
    assert run_audit([root]).findings == ()


def contents_of_logs(root: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(root.glob("*/*.log"))]


@pytest.mark.parametrize("crosses_disks", [False, True])
@pytest.mark.parametrize("steps", [2, 7])
def test_a_killed_run_is_completed_by_the_next_one(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crosses_disks: bool, steps: int
) -> None:
    expected = damaged_files(root)
    left = steps

    def counted_down(original: Callable[..., None]) -> Callable[..., None]:
        def call(*arguments: object) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise KilledRun
            is_crossing = crosses_disks and str(root) in str(arguments[0])[: len(str(root))]
            if original is rename and is_crossing:
                raise OSError(errno.EXDEV, "another disk")
            original(*arguments)

        return call

    rename = os.rename
    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", counted_down(rename))
        patch.setattr(applied_repairs, "_sync", counted_down(applied_repairs._sync))
        with pytest.raises(KilledRun):
            applied(root, tmp_path / "q")
    assert applied(root, tmp_path / "q") == 0
    content = contents(tmp_path / "q")
    assert [path for path in expected if path not in content] == []
    started_and_stopped(root)
    assert run_audit([root]).findings == ()


def test_damage_that_needs_a_decision_is_left(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    segment = sorted((root / str(PLAIN)).glob("*.log"))[0]
    corrupt_byte(segment, 100)
    assert applied(root, tmp_path / "q") == 1
    text = capsys.readouterr().out
    assert f"left batch-checksum {segment}" in text
    assert "let another replica lead" in text
    # The replica is to be copied again, so its indexes stay, too.
    assert "3 files moved" in text
    assert "Start the broker of node 1" in text
    assert segment.exists()
    assert applied(root, tmp_path / "q") == 1
    text = capsys.readouterr().out
    assert "0 files moved" in text
    assert "Start the broker" not in text


def test_a_directory_in_use_is_refused(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [sys.executable, "-c", HOLD_LOCK, str(root / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert applied(root, tmp_path / "q") == 2
        holder.communicate(b"")
    assert "another process uses this directory" in capsys.readouterr().err
    assert not (tmp_path / "q").exists()


def test_a_folder_that_changed_after_the_audit_is_left(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def change_and_run(*arguments: Any) -> object:
        index = sorted((root / str(PLAIN)).glob("*.index"))[0]
        index.write_bytes(b"made by a broker")
        return original(*arguments)

    original = applied_repairs.apply_repairs
    monkeypatch.setattr(applied_repairs, "apply_repairs", change_and_run)
    assert applied(root, tmp_path / "q") == 1
    text = capsys.readouterr().out
    assert "it has changed since it was read: audit again" in text
    assert "3 files moved" in text


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--apply"], "give both"),
        (["--quarantine", "q"], "give both"),
        (["--apply", "--quarantine", "q", "--json"], "neither --json"),
        (["--apply", "--quarantine", "{root}/q"], "outside of the log directories"),
    ],
)
def test_contradicting_options_are_refused(
    root: Path, capsys: pytest.CaptureFixture[str], options: list[str], complaint: str
) -> None:
    given = [option.format(root=root) for option in options]
    assert run(["audit", str(root), *given]) == 2
    assert complaint in capsys.readouterr().err
