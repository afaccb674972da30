"""The counts of share partitions, and their rows among the metrics."""

from share_leader import ACCEPT, RELEASE, Leader, settle

from spindle.common.errors import ErrorCode
from spindle.coordinator.share.delivery import AcknowledgeType
from spindle.runtime.metrics.partitions import PartitionRows


async def test_acknowledged_records_fetches_and_expired_locks_are_counted() -> None:
    s = Leader(lock_duration_ms=5)
    s.hosted.append(3)
    await s.acquired("a")
    assert await s.acknowledge(0, 0, ACCEPT, "a") is ErrorCode.NONE
    assert await s.acknowledge(1, 1, RELEASE, "a") is ErrorCode.NONE
    assert await s.acknowledge(0, 2, ACCEPT, "b") is ErrorCode.INVALID_RECORD_STATE
    while s.store.writes[-1].batches[-1].last_offset != 2:
        assert await s.acquired("b")
    counts = s.share.counts
    assert counts.acknowledgements == {AcknowledgeType.ACCEPT: 1, AcknowledgeType.RELEASE: 1}
    assert counts.loads.count == 1
    assert counts.acquires["g"].count == counts.ratios["g"].count == counts.ratios["g"].total > 1
    (led,) = s.share
    assert led.lock_timeouts > 0
    s.share.close()


async def test_a_share_partition_has_a_row() -> None:
    s = Leader()
    s.hosted.append(4)
    await s.acquired("a", max_records=3)
    await s.acknowledge(1, 1, ACCEPT, "a")
    await settle()
    rows = PartitionRows()
    for led in s.share:
        rows.add_shared(led)
    text = rows.text().decode()
    prefix = "kafka_server_share_partition_metrics"
    labels = '{group="g",topic="t",partition="0"}'
    assert f"{prefix}_in_flight_message_count{labels} 3\n" in text
    assert f"{prefix}_in_flight_batch_count{labels} 3\n" in text
    assert f"# TYPE {prefix}_acquisition_lock_timeout_total counter\n" in text
    s.share.close()
