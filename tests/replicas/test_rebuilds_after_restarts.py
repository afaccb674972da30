"""A broker that dies in the middle of a rebuild starts with one log of the replica, and follows."""

import asyncio
from itertools import count

import pytest
from cluster_image import directory_of
from log_builders import NOW_MS, batch, values
from moving_broker import (
    BROKER,
    SMALL,
    WHERE,
    Disks,
    InlineExecutor,
    MovingBroker,
    new_cluster,
)

from spindle.common.ids import OffsetAndEpoch
from spindle.common.uuids import DIRECTORY_LOST
from spindle.disks.deleted_log import DeletedLog
from spindle.disks.directory_store import DirectoryStore
from spindle.log.formats.names import deleted_directory

LEADER = 2
A = directory_of(BROKER, 0)
RECORDS = 3


async def follower() -> MovingBroker:
    """Return a broker whose follower has left the ISR for a rebuild."""
    cluster = new_cluster(2, (LEADER, BROKER))
    broker = await MovingBroker(Disks(), cluster).start()
    for number in range(RECORDS):
        await broker.feed(f"{number}")
    broker.is_deaf = True
    cluster.change("orders", isr=[LEADER])
    broker.record(DIRECTORY_LOST)
    return broker


def replace_with_empty(store: DirectoryStore) -> None:
    store.replace_with_empty(store.logs[WHERE], (7).to_bytes(16, "big"), NOW_MS)


@pytest.mark.parametrize("power_left", range(0, 60, 3))
async def test_a_kill_while_the_log_is_put_aside_leaves_the_former_log_or_the_new_one(
    power_left: int,
) -> None:
    broker = await follower()
    directory = broker.directories[0]
    broker.disks.power_left = power_left
    executor = directory.executor
    assert isinstance(executor, InlineExecutor)
    executor.submit_nowait(replace_with_empty, directory.store)
    await asyncio.sleep(0)
    broker.disks.power_left = None
    await broker.stop()
    again = MovingBroker(broker.disks, broker.cluster, uuids=count(10**6))
    await again.start()
    assert len(values(again.partition.log)) in (0, RECORDS)
    assert again.names(0).count("orders-0") == 1
    assert again.assigned == [A]
    assert again.partition in again.fetching.followed
    await again.stop()


async def test_a_former_log_beside_a_new_one_stays_until_the_replica_is_in_sync() -> None:
    broker = await follower()
    directory = broker.directories[0]
    await directory.executor.submit(replace_with_empty, directory.store)
    await broker.stop()
    again = await MovingBroker(broker.disks, broker.cluster, uuids=count(10**6)).start()
    again.expire()
    assert sorted(again.names(0)) == ["orders-0", "orders-0-delete"]
    for number in range(RECORDS):
        await again.feed(f"{number}")
    await again.follow_metadata()
    again.expire()
    assert sorted(again.names(0)) == ["orders-0", "orders-0-delete"]
    again.cluster.change("orders", isr=[LEADER, BROKER])
    await again.follow_metadata()
    again.expire()
    assert again.names(0) == ["orders-0"]
    await again.stop()


@pytest.mark.parametrize("later_records", [0, 2 * RECORDS])
async def test_the_former_log_stays_if_an_unclean_election_chose_a_new_one_that_lacks_records(
    later_records: int,
) -> None:
    broker = await follower()
    directory = broker.directories[0]
    await directory.executor.submit(replace_with_empty, directory.store)
    await broker.feed("0")
    await broker.stop()
    again = await MovingBroker(broker.disks, broker.cluster, uuids=count(10**6)).start()
    again.cluster.change("orders", isr=[BROKER], leader=BROKER)
    await again.follow_metadata()
    epoch = again.partition.leader_epoch
    for number in range(later_records):
        again.partition.log.append_as_leader(bytearray(batch(f"{number}")), epoch, NOW_MS)
    again.cluster.change("orders", isr=[BROKER, LEADER])
    await again.follow_metadata()
    again.expire()
    assert sorted(again.names(0)) == ["orders-0", "orders-0-delete"]
    await again.stop()


async def test_a_former_log_stays_if_the_other_disk_fails_while_its_end_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = await follower()
    store = broker.directories[1].store
    former = store.create(WHERE, broker.partition.topic_id, SMALL, NOW_MS)
    former.append_as_leader(bytearray(batch("0")), 0, NOW_MS)
    former.rename(deleted_directory(WHERE, (7).to_bytes(16, "big")))
    await broker.stop()
    again = await MovingBroker(broker.disks, broker.cluster, uuids=count(10**6)).start()
    read_end = DirectoryStore.end_of_deleted

    def fail_meanwhile(store: DirectoryStore, deleted: DeletedLog) -> OffsetAndEpoch | None:
        again.directories[0].executor.fail("dead")
        return read_end(store, deleted)

    monkeypatch.setattr(DirectoryStore, "end_of_deleted", fail_meanwhile)
    again.cluster.change("orders", isr=[LEADER, BROKER], directories=[directory_of(LEADER), A])
    await again.follow_metadata()
    again.expire()
    assert again.directories[0].is_offline
    assert again.names(1) == ["orders-0-delete"]
    await again.stop()


async def test_no_log_is_created_elsewhere_while_the_directory_of_a_rebuild_is_offline() -> None:
    broker = await follower()
    directory = broker.directories[0]
    await directory.executor.submit(replace_with_empty, directory.store)
    await broker.stop()
    again = MovingBroker(broker.disks, broker.cluster, uuids=count(10**6))
    again.directories[0].executor.fail("dead")
    await again.start()
    assert again.replicas.lookup(*WHERE) is None
    await again.bring_online(0)
    assert len(values(again.partition.log)) == 0
    assert again.partition in again.fetching.followed
    await again.stop()


async def test_a_log_that_was_put_back_has_its_records_after_a_restart() -> None:
    broker = await follower()
    store = broker.directories[0].store
    former = store.logs[WHERE]
    replace_with_empty(store)
    new = store.logs[WHERE]
    new.append_as_leader(bytearray(batch("x")), 0, NOW_MS)
    store.put_former_back(former, new, (8).to_bytes(16, "big"), NOW_MS)
    await broker.stop()
    again = await MovingBroker(broker.disks, broker.cluster, config=SMALL).start()
    assert len(values(again.partition.log)) == RECORDS
    await again.stop()
