"""`spindle disks list` and `watch` against Apache Kafka, which has no private APIs."""

import json

import pytest
from peers.clients import create
from peers.compare import Pair
from peers.node import Node

from spindle.cli.main import run


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert run(words) == 0
    return capsys.readouterr().out


def rows(node: Node, capsys: pytest.CaptureFixture[str]) -> list[tuple[str, int, int, int]]:
    """Return path, capacity, partitions and leaders of each directory."""
    (broker,) = json.loads(said(capsys, "disks", "list", "--json", "-b", node.bootstrap))["brokers"]
    return [
        (directory["path"], directory["totalBytes"], directory["partitions"], directory["leaders"])
        for directory in broker["directories"]
    ]


def test_kafka_and_spindle_are_listed_in_the_same_table(
    pair: Pair, capsys: pytest.CaptureFixture[str]
) -> None:
    for node in (pair.reference, pair.candidate):
        create(node, "listed", 3)
        listed = rows(node, capsys)
        assert [path for path, *_ in listed] == sorted(map(str, node.log_dirs))
        assert all(total_bytes > 0 for _, total_bytes, *_ in listed)
        assert sum(partitions for *_, partitions, _ in listed) >= 3
        assert sum(leaders for *_, leaders in listed) >= 3
    table = said(capsys, "disks", "list", "-b", pair.reference.bootstrap).splitlines()
    assert table[1].split()[-2:] == ["-", "online"]
    assert table[-1].endswith("is not of Spindle: no directory ids, no reasons of failures.")


def test_kafka_can_be_watched_without_traffic_and_times(
    pair: Pair, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("disks", "watch", "--count", "2", "--interval", "0.2", "-b", pair.reference.bootstrap)
    for line in said(capsys, *words, "--json").splitlines():
        (broker,) = json.loads(line)["brokers"]
        assert broker["isSpindle"] is False
        assert all(directory["rates"] is None for directory in broker["directories"])
        assert all(directory["usableBytes"] > 0 for directory in broker["directories"])
    assert "not Spindle: no traffic, no times" in said(capsys, *words)
