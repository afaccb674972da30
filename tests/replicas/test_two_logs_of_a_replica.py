"""A start finds two logs of a replica: one was offline when the other was created."""

import pytest
from cluster_image import directory_of
from log_builders import NOW_MS, batch
from moving_broker import BROKER, WHERE, Disks, MovingBroker, new_cluster

from spindle.log.loading import create_log
from spindle.log.log_config import LogConfig
from spindle.log.storage import LogStorage

CREATED = directory_of(BROKER, 1)


async def restarted(*, offline_end: int, created_start: int) -> MovingBroker:
    """Return a broker that finds the log that was offline beside the one that was created."""
    cluster = new_cluster(2, (BROKER,))
    before = await MovingBroker(Disks(), cluster).start()
    for number in range(offline_end):
        before.partition.log.append_as_leader(bytearray(batch(f"{number}")), 5, NOW_MS)
    await before.stop()
    topic_id = cluster.image.topics.by_name["orders"].topic_id
    storage = LogStorage(before.disks, "/disk1")
    create_log(storage, "orders-0", WHERE, topic_id, LogConfig(), NOW_MS, created_start)
    cluster.change("orders", directories=[CREATED])
    return await MovingBroker(before.disks, cluster).start()


async def test_a_log_that_started_over_is_newer_than_one_that_ends_before() -> None:
    # The leader had removed the records below 4 before it sent anything to the new log.
    broker = await restarted(offline_end=2, created_start=4)
    assert broker.partition.directory.directory_id == CREATED
    assert broker.partition.log.log_end_offset == 4


@pytest.mark.parametrize("created_start", [0, 2])
async def test_a_log_with_records_outranks_an_empty_one_that_starts_within_it(
    created_start: int,
) -> None:
    broker = await restarted(offline_end=2, created_start=created_start)
    assert broker.partition.log.log_start_offset == 0
    assert broker.partition.log.log_end_offset == 2
