"""read_committed leaves out the same batches, whatever part of the log is read."""

from collections.abc import Sequence

import pytest
from log_directory_files import marker

from spindle.client.fetching import AbortedProducer
from spindle.client.isolation import AbortedTransactions
from spindle.columnar.decoder import BatchDecoder, RowFilter
from spindle.common.ids import TopicPartition
from spindle.protocol.records.batch import read_header
from spindle.protocol.records.builder import SimpleRecord, build_batch, empty_batch

PARTITION = TopicPartition("topic", 0)


def data_batch(offset: int, producer_id: int) -> bytes:
    return build_batch(
        [SimpleRecord(None, b"%d" % producer_id, 5)],
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=producer_id >= 0,
    )


LOG = (
    data_batch(0, 7)
    + data_batch(1, 8)
    + data_batch(2, -1)
    + data_batch(3, 7)
    + marker(7, 4, is_commit=False)
    + data_batch(5, 7)
    + marker(8, 6, is_commit=True)
    + marker(7, 7, is_commit=True)
    + data_batch(8, 8)
    + marker(8, 9, is_commit=False)
)
"""Producer 7 aborts [0, 4] and commits [5, 7]; producer 8 commits [1, 6] and aborts [8, 9]."""
ABORTED = [AbortedProducer(7, 0), AbortedProducer(8, 8)]


def offsets(
    start: int, end: int, aborted: Sequence[AbortedProducer] | None, log: bytes = LOG
) -> list[int]:
    decoder = BatchDecoder(
        PARTITION,
        ("offset",),
        RowFilter(start, end),
        aborted=None if aborted is None else AbortedTransactions(aborted),
    )
    return [
        offset for batch in decoder.decode(log) for offset in batch.column("offset").to_pylist()
    ]


def test_read_uncommitted_returns_aborted_data() -> None:
    assert offsets(0, 100, None) == [0, 1, 2, 3, 5, 8]


def test_committed_leaves_out_what_was_aborted() -> None:
    assert offsets(0, 100, ABORTED) == [1, 2, 5]


@pytest.mark.parametrize("cut", range(11))
def test_a_cut_anywhere_gives_the_same_rows(cut: int) -> None:
    assert offsets(0, cut, ABORTED) + offsets(cut, 100, ABORTED) == [1, 2, 5]


def test_without_aborted_transactions_nothing_is_left_out_but_markers() -> None:
    assert offsets(0, 100, []) == [0, 1, 2, 3, 5, 8]


def test_compaction_may_leave_a_control_batch_without_its_marker() -> None:
    emptied = empty_batch(read_header(marker(7, 10, is_commit=False)))
    log = LOG + emptied + data_batch(11, 7)
    assert offsets(8, 100, [], log) == [8, 11]
