"""`spindle disks list`: the table, and the survey of brokers that are down or not of Spindle."""

import json
import socket
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from disk_reports import MIB, disk, move, report, silent

from spindle.cli.disks import broker_poll
from spindle.cli.disks.list_command import list_lines
from spindle.cli.disks.state_text import cordon_text, state_text
from spindle.cli.main import run
from spindle.client.admin.cluster import ClusterDescription, ClusterNode, describe_brokers
from spindle.client.blocking.client import WireClient
from spindle.client.disks import CordonView
from spindle.client.errors import UnsupportedByPeer
from spindle.disks.device_health import DeviceHealth
from spindle.operations.forecasts import ClusterForecast
from spindle.operations.history_folder import RecordedHistory

NOW_MS = int(datetime(2026, 3, 4, 14, 5, 0).timestamp()) * 1000
AT_MS = int(datetime(2026, 3, 4, 14, 2, 11).timestamp()) * 1000
DAY_MS = 86_400_000


def test_the_table_has_a_row_for_each_directory() -> None:
    offline = disk("/d/2", failure="EIO while writing t-3/0.log", failed_at_ms=AT_MS)
    lines = list_lines([report(disk(), offline), silent()], NOW_MS, None)
    assert " ".join(lines[0].split()) == (
        "BROKER DIRECTORY CAPACITY USED FILL FREE LOGS REPLICAS LEADERS ID STATE"
    )
    assert " ".join(lines[1].split()) == (
        "1 /d/1 100.0 GiB 40.0 GiB 40.0% 60.0 GiB 3.0 GiB 12 4 AAAAAAAAAAAAAAAAAAAA_w online"
    )
    assert lines[2].endswith("offline: EIO while writing t-3/0.log at 14:02:11")
    assert lines[3].split(maxsplit=10)[-1] == "fenced, no answer: Connection refused"


@pytest.mark.parametrize(("width", "titles"), [(120, 11), (90, 9), (80, 8), (70, 7), (64, 7)])
def test_a_narrow_terminal_lacks_the_less_important_columns(width: int, titles: int) -> None:
    offline = disk("/data/kafka/2", failure="EIO while writing t-3/0.log", failed_at_ms=AT_MS)
    lines = list_lines([report(disk("/data/kafka/1"), offline)], NOW_MS, width)
    assert len(lines[0].split()) == titles
    assert max(map(len, lines)) <= width
    assert lines[-1].endswith("offline: EIO while writing t-3/0.log at 14:02:11")


@pytest.mark.parametrize("width", [80, 70])
def test_a_narrow_terminal_keeps_the_forecasts_and_the_ends_of_paths(width: int) -> None:
    disks = [disk(f"/var/lib/spindle/node-1/disk-{number}") for number in (1, 2)]
    forecasts = ClusterForecast(RecordedHistory((), 0))
    lines = list_lines([report(*disks)], NOW_MS, width, forecasts)
    assert max(map(len, lines)) <= width
    assert [line.split()[1][-1] for line in lines[1:]] == ["1", "2"]
    assert all("unknown: too few samples (0 of 6)" in line for line in lines[1:])


def test_a_broker_of_kafka_is_remarked() -> None:
    foreign = report(disk(directory_id=None, work=None), node_id=5, is_spindle=False)
    lines = list_lines([foreign], NOW_MS, None)
    assert lines[1].split()[-2:] == ["-", "online"]
    assert lines[-1].startswith("Broker 5 is not of Spindle")


def test_the_state_names_errors_of_the_device_and_stray_logs() -> None:
    worn = disk(health=DeviceHealth("sda", 3, False, 1), stray_count=1, stray_bytes=MIB)
    assert state_text(worn, (), NOW_MS) == (
        "online, 1 stray log with 1.0 MiB, sda: SMART: failing, 1 media error, 3 I/O errors"
    )
    assert state_text(disk(health=DeviceHealth("sda", 0, True, None)), (), NOW_MS) == "online"


def test_the_state_names_everything_that_is_unusual() -> None:
    moves = [move(MIB, "/d/1", "/d/2"), move(MIB, "/d/3", "/d/1"), move(MIB, "/d/3", "/d/1")]
    cordoned = disk(cordons=(CordonView("configuration"),))
    assert state_text(disk(), moves, NOW_MS) == "online, 2 moving in, 1 moving out"
    assert state_text(cordoned, (), NOW_MS) == "cordoned"
    assert state_text(disk(failure="EIO"), (), NOW_MS) == "offline: EIO"


@pytest.mark.parametrize(
    ("cordon", "text"),
    [
        (CordonView("configuration", "repairs", "ann"), "cordoned by ann: repairs"),
        (
            CordonView("configuration", until_ms=AT_MS + DAY_MS),
            "cordoned until 2026-03-05 14:02:11",
        ),
        (CordonView("watermark", until_ms=AT_MS), "cordoned by watermark until 14:02:11"),
    ],
)
def test_a_cordon_says_who_and_until_when(cordon: CordonView, text: str) -> None:
    assert cordon_text(cordon, NOW_MS) == text


# -- against a node


def test_one_broker_is_listed_on_demand(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(("disks", "list", "--broker", "1")) == 0
    assert len(capsys.readouterr().out.splitlines()) == 4
    assert run(("disks", "list", "--broker", "7")) == 1
    assert capsys.readouterr() == ("", "broker 7 is unknown or down; known brokers: 1\n")


def test_a_broker_that_is_down_has_a_row_and_the_exit_code_says_so(
    bootstrap: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        free_port = server.getsockname()[1]
    real = describe_brokers

    def with_a_dead_one(client: WireClient) -> ClusterDescription:
        description = real(client)
        dead = ClusterNode(2, "127.0.0.1", free_port, None, True)
        return ClusterDescription(
            description.cluster_id, description.controller_id, (*description.nodes, dead)
        )

    monkeypatch.setattr(broker_poll, "describe_brokers", with_a_dead_one)
    assert run(("disks", "list")) == 1
    *_, last = capsys.readouterr().out.splitlines()
    assert last.split()[0] == "2"
    assert last.endswith("fenced, no answer: Connection refused")
    assert run(("disks", "list", "--json")) == 1
    first, second = json.loads(capsys.readouterr().out)["brokers"]
    assert len(first["directories"]) == 3
    assert (second["isFenced"], second["directories"]) == (True, [])
    assert "Connection refused" in second["error"]


def test_the_directories_of_another_broker_at_the_address_are_not_listed(
    bootstrap: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = describe_brokers

    def with_another_id(client: WireClient) -> ClusterDescription:
        description = real(client)
        (node,) = description.nodes
        return replace(description, nodes=(replace(node, node_id=2),))

    monkeypatch.setattr(broker_poll, "describe_brokers", with_another_id)
    assert run(("disks", "list", "--json")) == 1
    (broker,) = json.loads(capsys.readouterr().out)["brokers"]
    assert broker["directories"] == []
    assert "this is not broker 2 of cluster" in broker["error"]


def test_a_broker_without_the_private_api_is_listed_with_kafkas_fields(
    bootstrap: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise UnsupportedByPeer("not a Spindle broker")

    assert run(("topic", "create", "held", "-p", "3")) == 0
    monkeypatch.setattr(WireClient, "ask_spindle", refuse)
    capsys.readouterr()
    assert run(("disks", "list", "--json")) == 0
    (broker,) = json.loads(capsys.readouterr().out)["brokers"]
    assert broker["isSpindle"] is False
    for directory in broker["directories"]:
        assert (directory["directoryId"], directory["work"]) == (None, None)
        assert (directory["partitions"], directory["leaders"]) == (1, 1)
        assert directory["totalBytes"] >= directory["usableBytes"] > 0
    assert run(("topic", "delete", "held", "-y")) == 0
