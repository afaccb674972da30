"""`spindle dump-log` on files made here."""

from pathlib import Path
from struct import pack

import pytest

from spindle.cli.main import run
from spindle.cli.tools.message_json import frame_json, type_name
from spindle.common.uuids import ZERO_UUID
from spindle.protocol.messages.metadata_records import FeatureLevelRecord, RegisterBrokerRecord
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
    code = run(["dump-log", *words])
    captured = capsys.readouterr()
    return code, captured.out.splitlines(), captured.err


def test_batches(segment: Path, capsys: pytest.CaptureFixture[str]) -> None:
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


def test_markers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "00000000000000000000.log"
    marker = EndTransactionMarker(True, 4)
    path.write_bytes(build_end_transaction(marker, producer_id=1, producer_epoch=0, timestamp_ms=5))
    _, lines, _ = dump(capsys, "--deep-iteration", "--files", str(path))
    assert lines[3].endswith("endTxnMarker: COMMIT coordinatorEpoch: 4")


def test_metadata_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bootstrap.checkpoint"
    record = frame(FeatureLevelRecord(name="metadata.version", feature_level=30), 0)
    path.write_bytes(build_batch([SimpleRecord(None, record, 1), SimpleRecord(None, b"x", 1)]))
    _, lines, _ = dump(capsys, "--cluster-metadata-decoder", "--files", str(path))
    assert lines[1] == "KRaft bootstrap snapshot"
    assert lines[3].endswith(
        'payload: {"type":"FEATURE_LEVEL_RECORD","version":0,'
        '"data":{"name":"metadata.version","featureLevel":30}}'
    )
    assert "payload: Error at " in lines[4]


def test_fields_of_a_version() -> None:
    record = RegisterBrokerRecord(broker_id=1, incarnation_id=ZERO_UUID, fenced=True)
    assert type_name(record) == "REGISTER_BROKER_RECORD"
    text = frame_json(record, 0)
    assert '"brokerId":1' in text
    assert '"incarnationId":"AAAAAAAAAAAAAAAAAAAAAA"' in text
    assert "inControlledShutdown" not in text


def test_indexes(segment: Path, capsys: pytest.CaptureFixture[str]) -> None:
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


def test_files_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = dump(capsys, "--files", str(tmp_path / "00.log"))
    assert code == 1
    assert "No such file or directory" in err
    other = tmp_path / "x.txt"
    code, _, err = dump(capsys, "--files", str(other))
    assert (code, err.startswith(f"{other} is no file of a log; known are .log, ")) == (1, True)
