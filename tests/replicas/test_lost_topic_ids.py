"""A start finds logs whose `partition.metadata` is torn, empty or gone."""

import logging
from itertools import count

import pytest
from cluster_image import directory_of
from log_builders import NOW_MS, batch
from moving_broker import BROKER, WHERE, Disks, MovingBroker, new_cluster

from spindle.common.uuids import DIRECTORY_UNASSIGNED

FILE = "/disk0/orders-0/partition.metadata"
A, B = (directory_of(BROKER, number) for number in range(2))
OTHER = 2


def tear(disks: Disks) -> None:
    """Leave the name of the file without its content."""
    disks.open(FILE).truncate(0)


async def stopped(*replicas: int, batches: int = 12) -> MovingBroker:
    broker = await MovingBroker(Disks(), new_cluster(2, replicas or (BROKER,))).start()
    for number in range(batches):
        broker.partition.log.append_as_leader(bytearray(batch(f"{number:200}")), 0, NOW_MS)
    await broker.stop()
    return broker


def after(before: MovingBroker) -> MovingBroker:
    broker = MovingBroker(before.disks, before.cluster, uuids=count(10**6))
    broker.is_deaf = True
    return broker


@pytest.mark.parametrize("batches", [0, 12])
async def test_a_log_in_the_recorded_directory_is_that_of_the_replica(batches: int) -> None:
    before = await stopped(batches=batches)
    content = before.disks.read_bytes(FILE)
    tear(before.disks)
    broker = await after(before).start()
    assert broker.partition.log.log_end_offset == batches
    assert broker.names(0) == ["orders-0"]
    assert before.disks.read_bytes(FILE) == content


async def test_the_recorded_directory_does_not_make_records_those_of_a_replica_out_of_sync() -> (
    None
):
    # The controller records the only directory of a broker when it creates a topic. The log may
    # then be that of an earlier topic of the name, which was deleted while the broker was down.
    before = await stopped(BROKER, OTHER)
    before.cluster.change("orders", isr=[OTHER], leader=OTHER)
    tear(before.disks)
    broker = await after(before).start()
    assert broker.partition.log.log_end_offset == 0
    assert sorted(broker.names(0)) == ["orders-0", "orders-0-stray"]


async def test_an_empty_log_of_a_replica_without_a_recorded_directory_is_used() -> None:
    before = await stopped(batches=0)
    before.record(DIRECTORY_UNASSIGNED)
    tear(before.disks)
    broker = await after(before).start()
    assert (broker.names(0), broker.names(1)) == (["orders-0"], [])
    assert broker.partition.log.topic_id == broker.partition.topic_id


async def test_records_that_may_be_the_replicas_are_not_hidden_by_an_empty_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.ERROR):
        before = await stopped(BROKER, OTHER)
        before.record(DIRECTORY_UNASSIGNED)
        tear(before.disks)
        broker = await after(before).start()
        assert broker.replicas.lookup(*WHERE) is None
        assert (broker.names(0), broker.names(1)) == (["orders-0"], [])
        assert "its log may be /disk0/orders-0, whose topic id is lost" in caplog.text
        # Another replica leads, and does not count on this one.
        broker.cluster.change("orders", isr=[OTHER], leader=OTHER)
        await broker.follow_metadata()
        assert broker.partition.log.log_end_offset == 0
        assert sorted(broker.names(0) + broker.names(1)) == ["orders-0", "orders-0-stray"]


async def test_a_log_in_another_directory_than_the_recorded_one_is_a_stray() -> None:
    before = await stopped(BROKER, OTHER)
    before.record(B)
    before.cluster.change("orders", isr=[OTHER], leader=OTHER)
    tear(before.disks)
    broker = await after(before).start()
    assert (broker.names(0), broker.names(1)) == (["orders-0-stray"], ["orders-0"])
    assert not broker.directories[0].store.checkpoints_name_strays
