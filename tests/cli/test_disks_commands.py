"""`spindle disks`: the group, and its commands against a node of `spindle up`."""

import json
from typing import Any

import click
import pytest

from spindle.cli.disks.group import disks
from spindle.cli.main import run


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
    assert [each["path"] for each in broker["directories"]] == up["nodes"][0]["log_dirs"]
    assert run(("disks", "list")) == 0
    shown = capsys.readouterr().out
    assert all(each["directoryId"] in shown for each in broker["directories"])
