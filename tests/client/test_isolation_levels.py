"""Batches that a consumer shows to its application."""

from spindle.client.fetching import AbortedProducer
from spindle.client.isolation import shown_batches
from spindle.protocol.records.batch import read_header
from spindle.protocol.records.builder import SimpleRecord, build_batch, empty_batch
from spindle.protocol.records.control import EndTransactionMarker, build_end_transaction


def data(offset: int) -> bytes:
    return build_batch(
        [SimpleRecord(None, b"v", 5)],
        base_offset=offset,
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )


def abort_marker(offset: int) -> bytes:
    marker = EndTransactionMarker(is_commit=False, coordinator_epoch=0)
    batch = build_end_transaction(marker, 7, 0, 5)
    return offset.to_bytes(8, "big") + batch[8:]


def shown(log: bytes, *aborted: AbortedProducer) -> list[int]:
    return [header.base_offset for _, header, is_shown in shown_batches(log, aborted) if is_shown]


def test_an_abort_marker_ends_what_is_hidden() -> None:
    assert shown(data(0) + abort_marker(1) + data(2), AbortedProducer(7, 0)) == [2]


def test_compaction_may_leave_a_control_batch_without_its_marker() -> None:
    emptied = empty_batch(read_header(abort_marker(0)))
    assert shown(emptied + data(1)) == [1]
