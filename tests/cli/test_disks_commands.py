"""`spindle disks`: the group, and its commands against a node of `spindle up`."""

import json
from pathlib import Path
from typing import Any

import click
import pytest

from spindle.cli.command_groups import disks
from spindle.cli.disks import alter_commands
from spindle.cli.main import run
from spindle.common.ids import TopicPartition
from spindle.disks.alter_disks import DirectoryInUse, ReplicaState


def test_every_command_of_the_group_is_where_the_group_says() -> None:
    context = click.Context(disks, info_name="disks")
    for name in disks.list_commands(context):
        command = disks.get_command(context, name)
        assert command is not None
        assert command.name == name


def test_the_list_names_every_directory(
    up: dict[str, Any], bootstrap: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(("disks", "list", "--json")) == 0
    (broker,) = json.loads(capsys.readouterr().out)["brokers"]
    assert broker["broker"] == 1
    assert [directory["path"] for directory in broker["directories"]] == up["nodes"][0]["log_dirs"]
    assert run(("disks", "list")) == 0
    shown = capsys.readouterr().out
    assert all(directory["directoryId"] in shown for directory in broker["directories"])


def test_a_directory_is_added_and_retired_and_a_full_one_is_not(
    up: dict[str, Any], bootstrap: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    new = str(tmp_path / "new")
    assert run(("disks", "add", "1", new)) == 0
    shown = capsys.readouterr().out
    assert f"Broker 1 formatted it and uses it: {new}, directory id " in shown
    assert "Add it to log.dirs" in shown
    assert run(("disks", "add", "1", new)) == 1
    assert f"{new} is a log directory of broker 1 already" in capsys.readouterr().err
    assert run(("disks", "online", "1", new)) == 1
    assert (
        "no replica of this broker is lost: nothing to bring back online" in capsys.readouterr().err
    )
    assert run(("topic", "create", "full", "--partitions", "8")) == 0
    capsys.readouterr()
    assert run(("disks", "remove", "1", new, "--json")) == 1
    refused = json.loads(capsys.readouterr().out)
    assert refused["replicas"][0]["state"] == "present"
    (moved, *_) = refused["reassignment"]["partitions"]
    assert moved["log_dirs"] != [new]
    assert run(("disks", "remove", "1", new)) == 1
    advice = capsys.readouterr().err
    assert f"{new} has 2 replicas; move them" in advice
    assert f"spindle disks cordon 1 {new}" in advice
    assert run(("topic", "delete", "full", "--yes")) == 0
    capsys.readouterr()
    assert run(("disks", "remove", "1", new)) == 0
    assert f"Broker 1 no longer uses {new}" in capsys.readouterr().out


def test_no_move_is_advised_for_replicas_that_are_lost(
    up: dict[str, Any],
    bootstrap: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lost = {TopicPartition("t", 1): ReplicaState.OFFLINE}

    def refuse(*_: object) -> None:
        raise DirectoryInUse("/d2", lost, "/d2 is offline and has the only replica")

    monkeypatch.setattr(alter_commands, "alter_disks", refuse)
    assert run(("disks", "remove", "1", "/d2")) == 1
    refused = capsys.readouterr().err
    assert "/d2 is offline and has the only replica." in refused
    assert "LOST" in refused
    assert "moves.json" not in refused
    assert run(("disks", "remove", "1", "/d2", "--json")) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["replicas"][0]["state"], document["reassignment"]) == ("lost", None)


def test_a_broker_that_is_not_there_is_named(
    up: dict[str, Any], bootstrap: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(("disks", "add", "9", "/d")) == 1
    assert "broker 9 is unknown or down; known brokers: 1" in capsys.readouterr().err


def test_disks_online_prints_the_command_that_accepts_the_losses(
    up: dict[str, Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = {TopicPartition("t", 1): ReplicaState.OFFLINE}

    def refuse(*_: object) -> None:
        raise DirectoryInUse("/d 2", lost, "/d 2 is empty")

    monkeypatch.setattr(alter_commands, "alter_disks", refuse)
    words = ("disks", "online", "1", "/d 2", "-b", up["bootstrap_servers"])
    command = (
        f"spindle disks online 1 '/d 2' --bootstrap-server {up['bootstrap_servers']} "
        "--accept-loss t-0 --accept-loss t-1"
    )
    assert run((*words, "--accept-loss", "t-0")) == 1
    assert capsys.readouterr().err.endswith(f"creates the replicas empty:\n  {command}\n")
    assert run((*words, "--accept-loss", "t-0", "--json")) == 1
    assert json.loads(capsys.readouterr().out)["acceptingCommand"] == command
