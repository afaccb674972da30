"""A drain whose target fills up: the disk stays online, and the replica goes elsewhere."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from up_command import UP

from spindle.cli.main import run
from spindle.cli.tools.bootstrap import connect
from spindle.common.errors import ErrorCode
from spindle.operations.reassignment import places_of

DISK_BYTES = 128 * 2**20
LEFT_BYTES = 4 * 2**20
DRAIN = (sys.executable, "-c", "from spindle.cli.main import main; main()", "drain")


@contextmanager
def started(folder: Path) -> Iterator[str]:
    """Start a node with three log directories, and return its address."""
    options = ("--json", "--port", "0", "--data", str(folder))
    with subprocess.Popen([*UP, *options], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        events = map(json.loads, process.stdout)
        ready = next(event for event in events if event["event"] == "ready")
        try:
            yield str(ready["bootstrap_servers"])
        finally:
            process.terminate()
            process.stdout.read()


@contextmanager
def on_small_disk(directory: Path) -> Iterator[None]:
    """Bring a log directory onto a small file system of its own; only root can."""
    if os.geteuid() != 0:
        pytest.skip("mounting a file system needs root")
    saved = directory.with_name(f"{directory.name}-saved")
    directory.rename(saved)
    directory.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(directory)]
    if subprocess.run(command, check=False).returncode != 0:
        pytest.skip("this machine does not let root mount a tmpfs")
    try:
        shutil.copytree(saved, directory, dirs_exist_ok=True)
        yield
    finally:
        subprocess.run(["umount", str(directory)], check=True)


@pytest.fixture
def small_disks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Start a node whose three directories are small disks."""
    folder = tmp_path / "cluster"
    with started(folder):
        pass
    with ExitStack() as mounts:
        for directory in sorted(folder.glob("disk-?")):
            mounts.enter_context(on_small_disk(directory))
        with started(folder) as address:
            monkeypatch.setenv("SPINDLE_BOOTSTRAP", address)
            yield address


@pytest.mark.full
def test_a_drain_does_not_fill_a_disk_that_others_fill_meanwhile(
    small_disks: str, tmp_path: Path
) -> None:
    assert run(("topic", "create", "t", "-p", "1", "-r", "1")) == 0
    load = ("--num-records", "32", "--record-size", "500000", "--throughput", "-1")
    assert run(("kafka", "producer-perf-test", "--topic", "t", *load)) == 0
    with connect(small_disks, {}) as client:
        ((replica, source),) = (
            (item, path)
            for item, path in places_of(client).directories.items()
            if item.partition.topic == "t"
        )
        words = (f"1:{source}", "--throttle", "1MiB", "--state", str(tmp_path / "drain.json"))
        with subprocess.Popen([*DRAIN, *words], stdout=subprocess.PIPE, text=True) as drain:
            assert drain.stdout is not None
            next(line for line in drain.stdout if line.startswith("moving"))
            while replica not in (futures := places_of(client).futures):
                pass
            target = futures[replica]
            free = shutil.disk_usage(target).free
            assert free < DISK_BYTES
            with (Path(target) / "foreign").open("wb") as foreign:
                os.posix_fallocate(foreign.fileno(), 0, free - LEFT_BYTES)
            shown = next(line for line in drain.stdout if "is cancelled" in line)
            rest = drain.stdout.read()
        assert drain.returncode == 0, rest
        assert f"directory {target} of broker 1" in shown
        assert rest.splitlines()[-1] == f"1:{source} has no replicas and is cordoned"
        assert places_of(client).directories[replica] not in (source, target)
        (views,) = client.describe_log_dirs().values()
        assert {view.error for view in views} == {ErrorCode.NONE}
        assert [view.path for view in views if view.is_cordoned] == [source]
