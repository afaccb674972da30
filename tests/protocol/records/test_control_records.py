"""Keys and markers of control batches."""

import pytest

from spindle.common.errors import CorruptRecords
from spindle.protocol.records.batch import read_header
from spindle.protocol.records.control import (
    ControlType,
    EndTransactionMarker,
    build_control_batch,
    build_end_transaction,
    control_key,
    read_control_type,
    read_end_transaction,
)
from spindle.protocol.records.record import Record, decode_records


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_marker_is_read_back(is_commit: bool) -> None:
    marker = EndTransactionMarker(is_commit, coordinator_epoch=12)
    batch = build_end_transaction(marker, 5, 2, 1000, leader_epoch=4)
    header = read_header(batch)
    assert (header.is_control, header.is_transactional, header.base_sequence) == (True, True, -1)
    assert (header.producer_id, header.producer_epoch, header.leader_epoch) == (5, 2, 4)
    (record,) = decode_records(batch, 0, header)
    assert read_end_transaction(record) == marker


def test_other_control_records_are_no_markers() -> None:
    batch = build_control_batch([(ControlType.LEADER_CHANGE, b"body")], 7, leader_epoch=3)
    header = read_header(batch)
    assert (header.is_control, header.is_transactional, header.producer_id) == (True, False, -1)
    (record,) = decode_records(batch, 0, header)
    assert read_control_type(record.key) == ControlType.LEADER_CHANGE
    assert read_end_transaction(record) is None


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0", b"\xff\xff\0\0"])
def test_keys_that_are_none(key: bytes | None) -> None:
    with pytest.raises(CorruptRecords, match="control record with key"):
        read_control_type(key)


@pytest.mark.parametrize("value", [None, b"", b"\0\0\0\0\0", b"\xff\xff\0\0\0\0"])
def test_marker_values_that_are_none(value: bytes | None) -> None:
    record = Record(3, 0, control_key(ControlType.COMMIT), value)
    with pytest.raises(CorruptRecords, match="end of transaction at offset 3"):
        read_end_transaction(record)
