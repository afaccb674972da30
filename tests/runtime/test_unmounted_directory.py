"""The disk of a log directory is unmounted while files in it are open."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from spindle.common.errors import LogDirectoryFailed
from spindle.common.ports import FileSystem
from spindle.runtime.machine import LocalMachine


def mount_another(monkeypatch: pytest.MonkeyPatch, directory: str) -> None:
    true_stat = os.stat

    def stat(path: str) -> os.stat_result:
        result = true_stat(path)
        if path != directory:
            return result
        values = list(result)
        values[2] += 1  # st_dev
        return os.stat_result(values)

    monkeypatch.setattr(os, "stat", stat)


@pytest.mark.parametrize(
    "use",
    [
        lambda files, path: files.capacity(path),
        lambda files, path: files.write_atomically(f"{path}/replication-offset-checkpoint", b""),
        lambda files, path: files.make_directories(f"{path}/t-0"),
    ],
)
def test_a_directory_on_another_file_system_fails_and_gets_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use: Callable[[FileSystem, str], object]
) -> None:
    path = str(tmp_path)
    machine = LocalMachine()
    files = machine.file_system([path])
    lock = machine.lock_directory(path)
    mount_another(monkeypatch, path)
    with pytest.raises(OSError, match="Stale file handle") as raised:
        use(files, path)
    assert raised.value.errno == errno.ESTALE
    assert LogDirectoryFailed(path, raised.value).reason == (
        "ESTALE because the directory is on another file system than before: its disk was "
        "unmounted, or another one was mounted over it"
    )
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]
    lock.release()
    use(files, path)
