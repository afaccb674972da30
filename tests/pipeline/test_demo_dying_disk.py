"""The second half of the demo, without Spark: a disk of a real cluster dies during an import."""

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from export_doubles import NO_SPARK
from rich.console import Console

from spindle.client.blocking.client import WireClient
from spindle.client.blocking.settings import client_settings
from spindle.common.ids import TopicPartition
from spindle.pipeline.demo import flights
from spindle.pipeline.demo.copies import Copies
from spindle.pipeline.demo.dying_disk import Acknowledgements, DyingDisk, busiest_disk
from spindle.pipeline.demo.node import DemoLayout
from spindle.pipeline.demo.screen import Screen
from spindle.pipeline.demo.sending import PARTITIONS, TOPIC
from spindle.testing import Cluster, Disk

ROWS = 4_000


def test_the_longest_gap_of_each_partition() -> None:
    now_s = 0.0
    watch = Acknowledgements(2, lambda: now_s)
    for moment_s, partition in ((1.0, 0), (1.5, 1), (4.0, 0), (5.0, 0), (5.5, 1)):
        now_s = moment_s
        watch.note(partition)
    assert [watch.longest_gap_s(number) for number in range(2)] == [3.0, 4.0]


def test_a_gap_that_lasts_belongs_to_what_follows() -> None:
    now_s = 0.0
    watch = Acknowledgements(1, lambda: now_s)
    for moment_s in (1.0, 3.0):
        now_s = moment_s
        watch.note(0)
    assert watch.take_longest_gap_s() == 2.0
    assert watch.longest_gap_s(0) == 0.0
    now_s = 10.0
    watch.note(0)
    assert watch.longest_gap_s(0) == 7.0


def test_a_disk_with_leaders_dies_rather_than_one_with_followers_alone() -> None:
    node: Any = SimpleNamespace(node_id=1)
    followers, leaders, both = (Disk(node, number, Path(f"d{number}")) for number in (1, 2, 3))
    held = {followers: [0, 1, 2], leaders: [3, 4], both: [5, 6]}
    leader_of = {0: 2, 1: 2, 2: 2, 3: 1, 4: 1, 5: 1, 6: 2}
    assert busiest_disk(held, leader_of) is both
    del held[both]
    assert busiest_disk(held, leader_of) is leaders


def test_a_disk_dies_in_the_middle_and_every_flight_arrives_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = flights.read_flights().slice(0, ROWS)
    stored: list[int] = []

    def count(_: DyingDisk, copies: Copies, cluster: Cluster, disk: Disk) -> None:
        assert disk.number > 1, "without the metadata log the node would stop"
        assert disk.node.is_running
        wanted = dict.fromkeys((TopicPartition(TOPIC, n) for n in range(PARTITIONS)), -1)
        with WireClient(client_settings({"bootstrap.servers": cluster.bootstrap_servers})) as it:
            stored.extend(answer.offset for answer in it.list_offsets(wanted).values())
        assert copies.sent.records == ROWS

    monkeypatch.setattr(flights, "read_flights", lambda: some)
    monkeypatch.setattr(DyingDisk, "_read", count)
    out = io.StringIO()
    screen = Screen(Console(file=out, width=140))
    layout = DemoLayout(tmp_path / "demo")
    layout.make_empty()
    assert DyingDisk(screen, layout, spark=NO_SPARK).run()
    assert sum(stored) == ROWS
    text = out.getvalue()
    assert "its leader" in text or "a follower" in text
    assert "every broker knew the new leaders after" in text
    assert "fails: EIO" in text
