"""Brokers with several directories below and above the metadata.version that knows them (17)."""

import asyncio
import logging
from pathlib import Path

import pytest
from directory_harness import registered
from node_harness import Client, Home, batch_of, connected, running
from waiting import until

from spindle.common.uuids import DIRECTORY_MIGRATING
from spindle.protocol.messages.update_features import UpdateFeaturesRequest
from spindle.runtime.node import Node

OLD_RELEASE = ("--release-version", "3.6")


async def upgrade(client: Client, level: int = 30) -> None:
    update = UpdateFeaturesRequest.FeatureUpdateKey(
        feature="metadata.version", max_version_level=level, upgrade_type=1
    )
    response = await client.ask(UpdateFeaturesRequest(timeout_ms=10_000, feature_updates=[update]))
    assert response.error_code == 0, response


def recorded(node: Node) -> list[bytes]:
    """Return the recorded directory of each partition of t."""
    partitions = node.publisher.image.topics.by_name["t"].partitions
    return [partitions[index].directory(1) for index in sorted(partitions)]


async def test_an_upgrade_makes_a_broker_register_and_assign_its_directories(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home = Home(tmp_path).format(*OLD_RELEASE)

    with caplog.at_level(logging.ERROR):
        async with running(home) as node, connected(node) as client:
            assert node.broker is not None
            await client.create_topic("t", partitions=3)
            assert (await client.produce("t", 0, batch_of(b"x"))).error_code == 0
            assert registered(node) == ()
            assert recorded(node) == [DIRECTORY_MIGRATING] * 3
            assert node.broker.directory_reports.queued_count == 3
            epoch = node.broker.lifecycle.broker_epoch
            incarnation = node.publisher.image.cluster.brokers[1].incarnation_id
            await upgrade(client)
            directories = node.broker.replicas.directories
            await until(lambda: DIRECTORY_MIGRATING not in recorded(node))
            await until(lambda: len(registered(node)) == 3)
            assert set(recorded(node)) == {d.directory_id for d in directories}
            assert set(registered(node)) == {d.directory_id for d in directories}
            own = node.publisher.image.cluster.brokers[1]
            assert (own.epoch, own.incarnation_id, own.is_fenced) == (epoch, incarnation, False)
            assert node.broker.directory_reports.queued_count == 0
            assert (await client.produce("t", 0, batch_of(b"y"))).base_offset == 1
    (line,) = {record.getMessage() for record in caplog.records}
    assert "does not support several log directories, and this broker has 3" in line


@pytest.mark.parametrize("is_upgraded", [False, True])
async def test_a_failure_that_the_metadata_cannot_record_ends_the_broker(
    tmp_path: Path, is_upgraded: bool
) -> None:
    home = Home(tmp_path).format(*OLD_RELEASE)

    async with running(home) as node, connected(node) as client:
        assert node.broker is not None
        if is_upgraded:
            await upgrade(client, 17)
            await until(lambda: len(registered(node)) == 3)
        node.broker.replicas.directories[1].executor.fail("EIO")
        if is_upgraded:
            await until(lambda: len(registered(node)) == 2)
            assert not node.is_stopping
        else:
            fault = await asyncio.wait_for(node.wait_stopped(), 30)
            assert fault is not None
            assert "disk2 is offline, and metadata.version 14 cannot record that" in fault
