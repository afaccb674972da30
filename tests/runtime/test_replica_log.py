"""The batches that a coordinator reads of its partition, from the log of a real node."""

from pathlib import Path

from node_harness import Home, batch_of, connected, records_in, run, running

from spindle.common.ids import TopicPartition
from spindle.protocol.messages.delete_records import DeleteRecordsRequest
from spindle.runtime.coordinator.replica_log import ReplicaCoordinatorLog


def test_loading_goes_on_where_retention_has_moved_the_log_start(tmp_path: Path) -> None:
    kind = DeleteRecordsRequest.DeleteRecordsTopic
    deletion = DeleteRecordsRequest(
        timeout_ms=5_000,
        topics=[
            kind(
                name="t",
                partitions=[kind.DeleteRecordsPartition(partition_index=0, offset=2)],
            )
        ],
    )

    async def scenario() -> None:
        async with running(Home(tmp_path, 1).format()) as node, connected(node) as client:
            await client.create_topic("t")
            for name in (b"a", b"b", b"c"):
                # One piece holds one of them.
                await client.produce("t", 0, batch_of(name * 600_000))
            assert node.broker is not None
            log = ReplicaCoordinatorLog(node.broker.replicas, lambda: 0)
            pieces = log.read_batches(TopicPartition("t", 0))
            first = records_in(await anext(pieces))
            assert (await client.ask(deletion)).topics[0].partitions[0].error_code == 0
            rest = [record.offset async for piece in pieces for record in records_in(piece)]
            assert ([record.offset for record in first], rest) == ([0], [2])

    run(scenario)
