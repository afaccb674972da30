"""`spindle kafka dump-log` on files made here."""

from pathlib import Path
from struct import pack

import pytest

from spindle.cli.main import run
from spindle.cli.tools.message_json import frame_json, type_name
from spindle.common.uuids import ZERO_UUID
from spindle.protocol.codec import encode
from spindle.protocol.messages.metadata_records import FeatureLevelRecord, RegisterBrokerRecord
from spindle.protocol.messages.share_group_state_records import ShareSnapshotValue
from spindle.protocol.metadata_frame import frame
from spindle.protocol.records.builder import SimpleRecord, build_batch
from spindle.protocol.records.control import EndTransactionMarker, build_end_transaction

RECORDS = [
    SimpleRecord(b"k", b"v", 1000, (("h", b"1"),)),
    SimpleRecord(None, None, 2000),
]


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    path = tmp_path / "00000000000000000005.log"
    path.write_bytes(build_batch(RECORDS, 5, producer_id=9, producer_epoch=1, base_sequence=3))
    return path


def dump(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[str], str]:
    code = run(["kafka", "dump-log", *words])
    captured = capsys.readouterr()
    return code, captured.out.splitlines(), captured.err


def test_a_segment_is_shown_batch_by_batch(
    segment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, lines, _ = dump(capsys, "--files", str(segment))
    assert code == 0
    assert lines[:2] == [f"Dumping {segment}", "Log starting offset: 5"]
    assert lines[2].startswith(
        "baseOffset: 5 lastOffset: 6 count: 2 baseSequence: 3 lastSequence: 4 producerId: 9 "
        "producerEpoch: 1 partitionLeaderEpoch: -1 isTransactional: false isControl: false "
        "deleteHorizonMs: OptionalLong.empty position: 0 CreateTime: 2000 size: "
    )
    assert lines[2].endswith("isvalid: true")


def test_records_and_their_data(segment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, lines, _ = dump(capsys, "--print-data-log", "--files", str(segment))
    assert lines[3:] == [
        "| offset: 5 CreateTime: 1000 keySize: 1 valueSize: 1 sequence: 3 headerKeys: [h] "
        "key: k payload: v",
        "| offset: 6 CreateTime: 2000 keySize: -1 valueSize: -1 sequence: 4 headerKeys: []",
    ]
    _, lines, _ = dump(capsys, "--deep-iteration", "--files", str(segment))
    assert not any("payload" in line for line in lines)


def test_a_damaged_batch_and_a_torn_tail(segment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = bytearray(segment.read_bytes())
    data[-1] ^= 1
    segment.write_bytes(bytes(data) + b"torn")
    code, lines, _ = dump(capsys, "--deep-iteration", "--files", str(segment))
    assert code == 1
    assert lines[2].endswith("isvalid: false")
    assert lines[3] == f"Found 4 invalid bytes at the end of {segment.name}"


def test_a_transaction_marker_is_shown_with_its_outcome_and_coordinator_epoch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "00000000000000000000.log"
    marker = EndTransactionMarker(True, 4)
    path.write_bytes(build_end_transaction(marker, producer_id=1, producer_epoch=0, timestamp_ms=5))
    _, lines, _ = dump(capsys, "--deep-iteration", "--files", str(path))
    assert lines[3].endswith("endTxnMarker: COMMIT coordinatorEpoch: 4")


def test_metadata_records_are_shown_as_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bootstrap.checkpoint"
    record = frame(FeatureLevelRecord(name="metadata.version", feature_level=30), 0)
    path.write_bytes(build_batch([SimpleRecord(None, record, 1), SimpleRecord(None, b"x", 1)]))
    _, lines, _ = dump(capsys, "--cluster-metadata-decoder", "--files", str(path))
    assert lines[1] == "KRaft bootstrap snapshot"
    assert lines[3].endswith(
        'payload: {"type":"FEATURE_LEVEL_RECORD","version":0,'
        '"data":{"name":"metadata.version","featureLevel":30}}'
    )
    assert "payload: Error at 1, skipping. " in lines[4]


def payloads(
    capsys: pytest.CaptureFixture[str], folder: Path, option: str, records: list[SimpleRecord]
) -> list[str]:
    """Return what follows the numbers in the lines of records."""
    path = folder / "00000000000000000000.log"
    path.write_bytes(build_batch(records))
    code, lines, _ = dump(capsys, option, "--skip-record-metadata", "--files", str(path))
    assert code == 0
    return [line for line in lines if line.startswith("|")]


def test_records_of_share_groups(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = b"\x00\x00\x00\x01g" + bytes(15) + b"\x05" + pack(">i", 7)
    batch = ShareSnapshotValue.StateBatch(last_offset=3, delivery_state=2, delivery_count=1)
    value = encode(ShareSnapshotValue(state_epoch=4, state_batches=[batch]), 0, bytes(2))
    lines = payloads(
        capsys,
        tmp_path,
        "--share-group-state-decoder",
        [SimpleRecord(key, value), SimpleRecord(key, None), SimpleRecord(key[:9], value)],
    )
    shown = '{"type":"0","data":{"groupId":"g","topicId":"AAAAAAAAAAAAAAAAAAAABQ","partition":7}}'
    assert lines[0] == (
        f'| key: {shown} payload: {{"version":"0","data":{{"snapshotEpoch":0,"stateEpoch":4,'
        '"leaderEpoch":0,"startOffset":0,"createTimestamp":0,"writeTimestamp":0,"stateBatches":['
        '{"firstOffset":0,"lastOffset":3,"deliveryState":2,"deliveryCount":1}]}}'
    )
    assert lines[1] == f"| key: {shown} payload: <DELETE>"
    assert lines[2].startswith("| key: Error at offset 2, skipping.")


def test_records_of_remote_storage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # These bytes were written by Kafka 4.3.1.
    head = "08746f7069632d78000000000000000000000000000000050000000300"
    segment = f"{head}0000000000000000000000000000000700"
    values = [
        f"010000{segment}000000000000000500000000000000140000000400000000000003e80000"
        "0000000007d0030000000000000000000000050000000002000000000000"
        "00090000001000040102fa0101000101",
        f"010100{segment}000000040000000000000834000100",
        f"010200{head}0000000400000000000008980000",
        "010000",
    ]
    lines = payloads(
        capsys,
        tmp_path,
        "--remote-log-metadata-decoder",
        [SimpleRecord(b"k", bytes.fromhex(value)) for value in values],
    )
    partition = "AAAAAAAAAAAAAAAAAAAABQ:topic-x-3"
    segment_id = (
        f"remoteLogSegmentId=RemoteLogSegmentId{{topicIdPartition={partition}, "
        "id=AAAAAAAAAAAAAAAAAAAABw}"
    )
    assert lines[:3] == [
        f"| payload: RemoteLogSegmentMetadata{{{segment_id}, startOffset=5, endOffset=20, "
        "brokerId=4, maxTimestampMs=1000, eventTimestampMs=2000, segmentLeaderEpochs={0=5, 2=9}, "
        "segmentSizeInBytes=4096, customMetadata=Optional[CustomMetadata{3 bytes}], "
        "state=COPY_SEGMENT_FINISHED, txnIdxEmpty=true}",
        f"| payload: RemoteLogSegmentMetadataUpdate{{{segment_id}, customMetadata=Optional.empty, "
        "state=COPY_SEGMENT_FINISHED, eventTimestampMs=2100, brokerId=4}",
        f"| payload: RemotePartitionDeleteMetadata{{topicPartition={partition}, "
        "state=DELETE_PARTITION_MARKED, eventTimestampMs=2200, brokerId=4}",
    ]
    assert lines[3].startswith("| payload: Error at offset 3, skipping.")


def test_fields_of_a_version() -> None:
    record = RegisterBrokerRecord(broker_id=1, incarnation_id=ZERO_UUID, fenced=True)
    assert type_name(record) == "REGISTER_BROKER_RECORD"
    text = frame_json(record, 0)
    assert '"brokerId":1' in text
    assert '"incarnationId":"AAAAAAAAAAAAAAAAAAAAAA"' in text
    assert "inControlledShutdown" not in text


def test_index_entries_are_shown_with_absolute_offsets(
    segment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index, times = segment.with_suffix(".index"), segment.with_suffix(".timeindex")
    index.write_bytes(pack(">ii", 1, 0))
    times.write_bytes(pack(">qi", 2000, 1))
    code, lines, _ = dump(capsys, "--files", f"{index},{times}")
    assert code == 0
    assert lines[1::2] == ["offset: 6 position: 0", "timestamp: 2000 offset: 6"]
    _, lines, _ = dump(capsys, "--index-sanity-check", "--files", str(times))
    assert lines[1] == f"{times} passed sanity check."
    index.write_bytes(pack(">ii", 1, 7))
    code, _, err = dump(capsys, "--verify-index-only", "--files", str(index))
    assert code == 1
    assert "does not point to a batch at position 7" in err
    index.write_bytes(b"odd")
    assert dump(capsys, "--files", str(index))[0] == 1


def test_files_that_are_not_there_or_not_of_a_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = dump(capsys, "--files", str(tmp_path / "00.log"))
    assert code == 1
    assert "No such file or directory" in err
    other = tmp_path / "x.txt"
    code, _, err = dump(capsys, "--files", str(other))
    assert (code, err) == (0, f"Ignoring unknown file {other}\n")
