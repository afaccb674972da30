"""The health of block devices: from a copy of sysfs and recorded answers of smartctl."""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spindle.disks.device_health import DeviceHealth
from spindle.runtime.disks.device_healths import DeviceHealths, read_health, smartctl

NVME = {
    "smart_status": {"passed": True},
    "nvme_smart_health_information_log": {"media_errors": 0},
}
ATA = {
    "smart_status": {"passed": False},
    "ata_smart_attributes": {
        "table": [
            {"id": 5, "raw": {"value": 900}},
            {"id": 197, "raw": {"value": 8}},
            {"id": 198, "raw": {"value": 2}},
        ]
    },
}


def sysfs(folder: Path, *disks: str, is_partition: bool = False) -> Path:
    """Make a folder like /sys/dev/block, with a device for the disk of the tests.

    Several disks are the parts of a logical volume.
    """
    number = os.stat(folder).st_dev
    devices = folder / "devices"
    for name in disks:
        (devices / name / "device").mkdir(parents=True)
    device = devices / disks[0]
    if is_partition:
        device /= f"{disks[0]}1"
        device.mkdir()
        (device / "partition").touch()
    elif len(disks) > 1:
        device = devices / "dm-0"
        (device / "slaves").mkdir(parents=True)
        for name in disks:
            (device / "slaves" / name).symlink_to(devices / name)
    path = folder / "block"
    path.mkdir()
    (path / f"{os.major(number)}:{os.minor(number)}").symlink_to(device)
    return path


def answering(**answers: dict[str, Any]) -> Callable[[str], dict[str, Any]]:
    return lambda name: answers.get(name, {})


def test_a_partition_has_the_health_of_its_disk(tmp_path: Path) -> None:
    path = sysfs(tmp_path, "sda", is_partition=True)
    (tmp_path / "devices" / "sda" / "device" / "ioerr_cnt").write_text("0x1f\n")
    health = read_health(str(tmp_path), path, answering(sda=ATA))
    assert health == DeviceHealth("sda", 31, False, 10)


def test_a_logical_volume_has_the_health_of_all_its_disks(tmp_path: Path) -> None:
    path = sysfs(tmp_path, "nvme0n1", "sdb")
    health = read_health(str(tmp_path), path, answering(nvme0n1=NVME, sdb=ATA))
    assert health == DeviceHealth("nvme0n1,sdb", None, False, 10)
    # One disk of which nothing is known leaves the sum unknown, and is no verdict of SMART.
    health = read_health(str(tmp_path), path, answering(nvme0n1=NVME))
    assert health == DeviceHealth("nvme0n1,sdb", None, None, None)


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"smart_status": []},
        {"smart_status": {"passed": "yes"}, "ata_smart_attributes": {"table": [5, {"id": 197}]}},
        {"nvme_smart_health_information_log": {"media_errors": -1}},
        {"nvme_smart_health_information_log": {"media_errors": True}},
        {"nvme_smart_health_information_log": {"media_errors": 2**80}},
        {"ata_smart_attributes": {"table": {"id": 197}}},
    ],
)
def test_an_answer_without_figures_claims_nothing(tmp_path: Path, answer: dict[str, Any]) -> None:
    root = sysfs(tmp_path, "sda")
    (tmp_path / "devices" / "sda" / "device" / "ioerr_cnt").write_text("many")
    assert read_health(str(tmp_path), root, answering(sda=answer)) == DeviceHealth("sda")


def test_a_directory_without_a_block_device_has_no_health(tmp_path: Path) -> None:
    (tmp_path / "block").mkdir()
    assert read_health(str(tmp_path), tmp_path / "block", answering()) is None
    assert read_health(str(tmp_path / "gone"), tmp_path / "block", answering()) is None


@pytest.mark.parametrize("output", ["", "nonsense", "[1]", '{"smart_status": {"passed": true}}'])
def test_output_of_smartctl_that_is_no_object_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str
) -> None:
    program = tmp_path / "smartctl"
    program.write_text(f"#!/bin/sh\necho '{output}'\nexit 4\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert bool(smartctl("sda")) == output.startswith("{")
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    assert smartctl("sda") == {}


def test_a_disk_that_hangs_holds_nobody_up_and_old_figures_are_forgotten() -> None:
    hangs, now_s = threading.Event(), [0.0]
    waits = threading.Event()

    def read(_: str) -> DeviceHealth:
        if now_s[0] > 0:
            waits.set()
            hangs.wait()
        return DeviceHealth("sda")

    healths = DeviceHealths(read, lambda: now_s[0])
    healths.of(["/d"])
    healths.join()
    assert healths.of(["/d"]) == {"/d": DeviceHealth("sda")}
    now_s[0] = 700.0
    assert healths.of(["/d"]) == {"/d": DeviceHealth("sda")}
    waits.wait()
    now_s[0] = 5000.0
    assert healths.of(["/d"]) == {}
    hangs.set()
    healths.join()
    assert healths.of(["/d"]) == {"/d": DeviceHealth("sda")}
