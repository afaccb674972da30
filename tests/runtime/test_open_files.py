"""Descriptors run short: connections are refused, files are not."""

import asyncio
import errno
import os
import time
from pathlib import Path
from typing import Any

import pytest
from node_harness import LANE_KEY, Home

from spindle.common.errors import ConfigError, LogDirectoryFailed
from spindle.common.filesystem import OsFileSystem
from spindle.disks.identity import load_ensemble
from spindle.runtime.disks.open_files import scarcity, share_out
from spindle.runtime.machine import LocalMachine
from spindle.runtime.node import Node


@pytest.mark.parametrize("limit", [256, 1024, 4096, 1_048_576])
@pytest.mark.parametrize("directories", [1, 2, 4])
@pytest.mark.parametrize(
    ("is_broker", "is_controller"), [(True, True), (True, False), (False, True)]
)
def test_all_shares_together_fit(
    limit: int, directories: int, is_broker: bool, is_controller: bool
) -> None:
    shares = share_out(limit, directories, is_broker=is_broker, is_controller=is_controller)
    connections = shares.by_brokers_clients + shares.by_controllers_clients
    assert connections + directories * shares.by_directory + 100 < limit
    assert shares.by_directory >= 16
    assert (shares.by_brokers_clients > 0) == is_broker
    assert (shares.by_controllers_clients > 0) == is_controller
    assert (scarcity(shares) is None) == (limit >= 4096)


def test_too_few_for_a_node() -> None:
    with pytest.raises(ConfigError, match=r"RLIMIT_NOFILE\) is 200.*3 log.*least 240; raise it"):
        share_out(200, 3, is_broker=True, is_controller=False)


async def test_a_flood_of_connections_leaves_the_node_its_files(tmp_path: Path) -> None:
    class SmallMachine(LocalMachine):
        def open_files_limit(self) -> int:
            return 300

    home = Home(tmp_path, 2).format()
    node = Node(home.config(), SmallMachine())
    await node.start()
    try:
        assert node.broker is not None
        port = node.broker.listeners[0].port
        most = share_out(300, 2, is_broker=True, is_controller=True).by_brokers_clients
        if LANE_KEY in home.properties:
            most //= 2  # the lanes have the other half
        streams = [await asyncio.open_connection("127.0.0.1", port) for _ in range(most + 1)]
        # The one too many hears the end of the stream; the others hear nothing.
        readers = [asyncio.ensure_future(reader.read(1)) for reader, _ in streams]
        done, _ = await asyncio.wait(readers, return_when=asyncio.FIRST_COMPLETED)
        assert len(done) == 1
        for reader in readers:
            reader.cancel()
        for _, writer in streams:
            writer.close()
        await asyncio.gather(*readers, return_exceptions=True)
    finally:
        await node.stop()


def test_a_file_waits_for_a_free_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = 3
    os_open = os.open

    def open_or_fail(*arguments: Any) -> int:
        nonlocal left
        left -= 1
        if left >= 0:
            raise OSError(errno.EMFILE, "Too many open files")
        return os_open(*arguments)

    monkeypatch.setattr(time, "sleep", lambda _: None)
    monkeypatch.setattr(os, "open", open_or_fail)
    OsFileSystem().open(str(tmp_path / "file"), create=True).close()
    left = 3
    OsFileSystem().write_atomically(str(tmp_path / "small"), b"x")
    assert left < 0
    left = 3
    assert OsFileSystem().read_bytes(str(tmp_path / "small")) == b"x"


def test_it_does_not_wait_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    now_s = iter(range(0, 1000, 4))
    monkeypatch.setattr(time, "sleep", lambda _: None)
    monkeypatch.setattr(time, "monotonic", lambda: next(now_s))
    monkeypatch.setattr(os, "open", fail)
    with pytest.raises(OSError, match="Too many open files"):
        OsFileSystem().open(str(tmp_path / "file"), create=True)


async def test_a_node_that_can_open_no_file_ends_and_blames_no_disk(tmp_path: Path) -> None:
    home = Home(tmp_path).format()

    def fail() -> None:
        raise OSError(errno.EMFILE, "Too many open files", "t-0/00000000000000000000.log")

    node = Node(home.config())
    await node.start()
    try:
        assert node.broker is not None
        directories = node.broker.replicas.directories
        with pytest.raises(LogDirectoryFailed):
            await directories[1].executor.submit(fail)
        fault = await asyncio.wait_for(node.wait_stopped(), 60)
        assert fault is not None
        assert "the disk is in order, but the process could open no file" in fault
        registered = node.publisher.image.cluster.brokers[1].directories
        assert directories[1].directory_id in registered
    finally:
        await node.stop()


def test_a_start_without_descriptors_calls_no_directory_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path).format()

    def fail(*_: object) -> bytes:
        raise OSError(errno.ENFILE, "Too many open files in system")

    monkeypatch.setattr(OsFileSystem, "read_bytes", fail)
    with pytest.raises(OSError, match="Too many open files in system"):
        load_ensemble(OsFileSystem(), list(map(str, home.directories)))
