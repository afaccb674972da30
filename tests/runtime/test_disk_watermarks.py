"""A broker cordons the directories that are nearly full, and no others."""

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from node_harness import Client, Home, connected, partition_folders, running
from waiting import until

from spindle.config.broker_values import BrokerValues
from spindle.protocol.messages.describe_disks import DescribeDisksRequest
from spindle.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from spindle.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from spindle.runtime.broker.disk_watermarks import DiskWatermarks
from spindle.runtime.node import Node

Altered = IncrementalAlterConfigsRequest.AlterConfigsResource
HIGH = "spindle.log.dir.cordon.high.watermark"
LOW = "spindle.log.dir.cordon.low.watermark"
SIZE_BYTES = 1 << 30
SMALL_BYTES = 8 << 20
AMPLE_BYTES = 256 << 20


class Disks:
    """File systems whose space the test sets."""

    def __init__(self, **used: float) -> None:
        self.used = used
        self.told: list[Sequence[str]] = []
        self.asked = 0
        self.has_effect = True

    async def ask(self) -> Mapping[str, tuple[int, int]]:
        self.asked += 1
        return {
            f"/{name}": (SIZE_BYTES, int(SIZE_BYTES * (1 - used)))
            for name, used in self.used.items()
        }

    def cordon(self, paths: Sequence[str]) -> bool:
        self.told.append(paths)
        return self.has_effect


def values(home: Home, **dynamic: str) -> BrokerValues:
    return BrokerValues(home.config(), {HIGH: "0.9", LOW: "0.8", **dynamic})


async def test_each_crossing_is_reported_once_and_logged_with_its_numbers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")

    disks = Disks(a=0.95, b=0.5)
    guard = DiskWatermarks(values(Home(tmp_path)), disks.ask, disks.cordon)
    await guard.check()
    await guard.check()
    assert disks.told == [("/a",)]
    disks.used = {"a": 0.85, "b": 0.91}
    await guard.check()
    disks.used = {"a": 0.75, "b": 0.91}
    await guard.check()
    assert disks.told == [("/a",), ("/a", "/b"), ("/b",)]
    assert caplog.messages == [
        f"log directory /a is nearly full: 95.0 % of 1.0 GiB used, 51.2 MiB free; {HIGH}=0.9; "
        "it is cordoned and gets no new replicas",
        f"log directory /b is nearly full: 91.0 % of 1.0 GiB used, 92.2 MiB free; {HIGH}=0.9; "
        "it is cordoned and gets no new replicas",
        f"log directory /a has free space again: 75.0 % of 1.0 GiB used, 256.0 MiB free; "
        f"{LOW}=0.8; its watermark cordon is removed",
    ]


async def test_below_the_level_of_cordons_the_log_says_that_nothing_changes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disks = Disks(a=0.95)
    disks.has_effect = False
    await DiskWatermarks(values(Home(tmp_path)), disks.ask, disks.cordon).check()
    (warning,) = caplog.messages
    assert "it still gets new replicas: metadata.version does not support" in warning


async def test_it_is_off_unless_the_high_watermark_is_below_one(tmp_path: Path) -> None:
    home = Home(tmp_path)
    disks = Disks(a=0.99)
    guard = DiskWatermarks(BrokerValues(home.config()), disks.ask, disks.cordon)
    await guard.check()
    assert (disks.asked, disks.told) == (0, [])
    guard.start()
    guard.update(values(home))
    await until(lambda: disks.told == [("/a",)])
    guard.update(BrokerValues(home.config()))
    await until(lambda: disks.told == [("/a",), ()])
    await guard.stop()


async def alter(client: Client, **changes: str) -> tuple[int, str | None]:
    """Change keys of broker 1; an empty value deletes."""
    names = {"high": HIGH, "low": LOW, "cordoned": "cordoned.log.dirs"}
    configs = [
        Altered.AlterableConfig(
            name=names[key], config_operation=0 if value else 1, value=value or None
        )
        for key, value in changes.items()
    ]
    resource = Altered(resource_type=4, resource_name="1", configs=configs)
    answer = await client.ask(IncrementalAlterConfigsRequest(resources=[resource]))
    return answer.responses[0].error_code, answer.responses[0].error_message


async def causes(client: Client) -> list[list[str]]:
    answer = await client.ask(DescribeDisksRequest())
    return [[cordon.cause for cordon in disk.cordons] for disk in answer.disks]


async def test_the_watermarks_are_checked_against_each_other(tmp_path: Path) -> None:
    async with running(Home(tmp_path).format()) as node, connected(node) as client:
        refused = (42, f"{LOW}=0.8 must be less than {HIGH}=0.7")
        assert await alter(client, high="0.7") == refused
        assert await alter(client, high="0.7", low="0.6") == (0, None)
        code, text = await alter(client, low="0.75")
        assert (code, text) == (42, f"{LOW}=0.75 must be less than {HIGH}=0.7")
        assert (await alter(client, low=""))[0] == 42, "the default, 0.8, is not less"
        assert await alter(client, high="", low="") == (0, None)
        code, text = await alter(client, high="1.5")
        assert code == 42
        assert text is not None
        assert "Value must be no more than 1" in text


@contextmanager
def mounted(place: Path, size_bytes: int) -> Iterator[None]:
    """Mount a tmpfs; only root can."""
    if os.geteuid() != 0:
        pytest.skip("mounting a file system needs root")
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(place)]
    if subprocess.run(command, check=False).returncode != 0:
        pytest.skip("this machine does not let root mount a tmpfs")
    try:
        yield
    finally:
        subprocess.run(["umount", str(place)], check=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount both log directories: the file system of this machine may be full."""
    with mounted(tmp_path / "disk1", AMPLE_BYTES), mounted(tmp_path / "disk2", SMALL_BYTES):
        yield tmp_path / "disk2"


def cordoned_in_metadata(node: Node) -> int:
    (broker,) = node.publisher.image.cluster.brokers.values()
    return len(broker.cordoned_directories or ())


async def test_a_small_file_system_that_fills_and_empties(
    tmp_path: Path, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spindle.runtime.broker.disk_watermarks.CHECK_S", 0.01)
    home = Home(tmp_path, directories=2).format()
    ballast = small_disk / "ballast"

    async with running(home) as node, connected(node) as client:
        assert await alter(client, high="0.95", low="0.5") == (0, None)
        assert await causes(client) == [[], []]
        # Not wholly: a broker that cannot write its checkpoints gives the directory up.
        ballast.write_bytes(bytes(SMALL_BYTES * 97 // 100))
        await until(lambda: cordoned_in_metadata(node) == 1)
        assert await causes(client) == [[], ["watermark"]]
        described = await client.ask(DescribeLogDirsRequest(topics=None))
        assert [result.is_cordoned for result in described.results] == [False, True]
        await client.create_topic("t", partitions=3)
        await client.ask(DescribeLogDirsRequest(topics=None))
        assert set(partition_folders(home).values()) == {"disk1"}

        assert await alter(client, cordoned=str(small_disk)) == (0, None)
        assert await causes(client) == [[], ["configuration", "watermark"]]
        ballast.unlink()
        while await causes(client) != [[], ["configuration"]]:
            pass
        assert cordoned_in_metadata(node) == 1, "the cordon of the operator stays"
        assert await alter(client, cordoned="") == (0, None)
        await until(lambda: cordoned_in_metadata(node) == 0)
