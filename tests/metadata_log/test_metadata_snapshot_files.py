"""Snapshot files: names, bytes as Apache Kafka 4.3.1 writes them, and damaged ones."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from metadata_history import history, image_of

from spindle.common.errors import CorruptLog
from spindle.common.ids import Endpoint, OffsetAndEpoch
from spindle.metadata.features import METADATA_VERSION
from spindle.metadata.partitions import registration_of
from spindle.metadata.record_versions import partition_version
from spindle.metadata.snapshot import snapshot_records
from spindle.metadata_log.encoding import encode_image, encode_records
from spindle.metadata_log.partition_values import PartitionValueReader
from spindle.metadata_log.snapshots import (
    MAX_RECORDS_PER_BATCH,
    SnapshotInfo,
    SnapshotPart,
    deleted_file_name,
    encode_snapshot,
    parse_snapshot_file_name,
    part_file_name,
    read_snapshot,
    read_snapshot_info,
    read_snapshot_values,
    snapshot_file_name,
    write_snapshot,
)
from spindle.protocol.message import Message
from spindle.protocol.messages.metadata_records import (
    FeatureLevelRecord,
    NoOpRecord,
    PartitionRecord,
    TopicRecord,
)
from spindle.protocol.metadata_frame import frame, parse_frame
from spindle.protocol.records.batch import batches
from spindle.protocol.records.builder import SimpleRecord, build_batch, build_batch_of_values
from spindle.raft.voters import ReplicaKey, Voter, VoterSet
from spindle.testing.filesystem import MemoryFileSystem

ID = OffsetAndEpoch(290, 1)
STATIC = SnapshotInfo(1000, 0, None)

# The first batches of recorded files.
STANDALONE = bytes.fromhex(
    "00 00 00 00 00 00 00 00 00 00 00 9a 00 00 00 00 02 9a 7f 83 a0 00 20 00 00 00 02 00 00 01 a1"
    "fe 5d 5b e2 00 00 01 a1 fe 5d 5b e2 ff ff ff ff ff ff ff ff ff ff ff ff ff ff 00 00 00 03 2a"
    "00 00 00 08 00 00 00 03 16 00 00 00 00 01 a1 fe 5d 5b de 00 00 1e 00 00 02 08 00 00 00 05 0a"
    "00 00 00 01 00 00 82 01 00 00 04 08 00 00 00 06 6e 00 00 02 00 00 00 01 24 42 99 35 3d 84 4d"
    "f2 bc c6 b7 6f 28 01 f4 b4 02 0b 43 4f 4e 54 52 4f 4c 4c 45 52 0a 31 32 37 2e 30 2e 30 2e 31"
    "75 f1 00 00 00 00 01 00 00 00 00"
)
GENERATED = bytes.fromhex(
    "00 00 00 00 00 00 00 00 00 00 00 47 00 00 00 01 02 16 c9 43 8d 00 20 00 00 00 00 00 00 01 a1"
    "fe 5f de 8a 00 00 01 a1 fe 5f de 8a ff ff ff ff ff ff ff ff ff ff ff ff ff ff 00 00 00 01 2a"
    "00 00 00 08 00 00 00 03 16 00 00 00 00 01 a1 fe 5f de 6a 00 00"
)


def standalone_voters() -> VoterSet:
    directory_id = bytes.fromhex("244299353d844df2bcc6b76f2801f4b4")
    endpoint = Endpoint("CONTROLLER", "127.0.0.1", 0x75F1)
    return VoterSet([Voter(ReplicaKey(1, directory_id), (endpoint,))])


def test_snapshot_file_names_are_composed_and_parsed() -> None:
    name = "00000000000000000290-0000000001.checkpoint"
    assert snapshot_file_name(ID) == name
    assert parse_snapshot_file_name(name) == ID
    assert deleted_file_name(ID) == name + ".deleted"
    assert part_file_name(ID, "77") == "00000000000000000290-0000000001-77.checkpoint.part"
    assert parse_snapshot_file_name("00000000000000000000-0000000000.checkpoint") == (0, 0)


@pytest.mark.parametrize(
    "name",
    [
        "290-1.checkpoint",
        "bootstrap.checkpoint",
        "00000000000000000290-0000000001.checkpoint.deleted",
        "00000000000000000290-0000000001-77.checkpoint.part",
        "00000000000000000290_0000000001.checkpoint",
        "0000000000000000029x-0000000001.checkpoint",
        "00000000000000000290.snapshot",
    ],
)
def test_other_files_are_no_snapshots(name: str) -> None:
    assert parse_snapshot_file_name(name) is None


def test_the_head_of_a_reconfigurable_quorum_is_written_as_recorded() -> None:
    info = SnapshotInfo(0x01A1FE5D5BDE, 1, standalone_voters())
    content = list(encode_snapshot([], info, epoch=0, now_ms=0x01A1FE5D5BE2))
    assert content[0] == STANDALONE
    assert sum(map(len, content)) == 241
    assert read_snapshot_info(STANDALONE, "x") == info


def test_the_head_of_a_static_quorum_is_written_as_recorded() -> None:
    info = SnapshotInfo(0x01A1FE5FDE6A, 0, None)
    content = list(encode_snapshot([], info, epoch=1, now_ms=0x01A1FE5FDE8A))
    assert content[0] == GENERATED
    assert read_snapshot_info(GENERATED, "x") == info


def test_offsets_count_within_the_file_and_the_epoch_is_that_of_the_id() -> None:
    values = [frame(NoOpRecord(), 0)] * (MAX_RECORDS_PER_BATCH + 2)
    data = b"".join(encode_snapshot(values, STATIC, epoch=7, now_ms=5))
    headers = [header for _, header in batches(data)]
    assert [(h.base_offset, h.record_count, h.is_control) for h in headers] == [
        (0, 1, True),
        (1, 1024, False),
        (1025, 2, False),
        (1027, 1, True),
    ]
    assert {h.leader_epoch for h in headers} == {7}


def test_a_snapshot_is_read_back() -> None:
    topic = TopicRecord(name="t", topic_id=b"i" * 16)
    data = b"".join(encode_snapshot([frame(topic, 0)], STATIC, epoch=1, now_ms=5))
    assert [batch.records for batch in read_snapshot(data, "x")] == [[], [topic], []]
    values = [batch.values for batch in read_snapshot_values(data, "x")]
    assert values == [[], [frame(topic, 0)], []]


def damaged() -> list[tuple[str, bytes, str]]:
    data = b"".join(encode_snapshot([frame(NoOpRecord(), 0)], STATIC, epoch=1, now_ms=5))
    flipped = bytearray(data)
    flipped[-80] ^= 1
    headless = data[len(GENERATED) :]
    return [
        ("cut in the footer", data[:-1], "does not end with its footer"),
        ("without footer", data[: -len(GENERATED) + 8], "does not end with its footer"),
        ("flipped", bytes(flipped), "crc"),
        ("without header", headless, "no snapshot header"),
        ("empty", b"", "no snapshot header"),
        ("with a tail", data + data[:70], "does not end with its footer"),
    ]


@pytest.mark.parametrize(
    ("data", "finding"), [d[1:] for d in damaged()], ids=[d[0] for d in damaged()]
)
def test_a_damaged_snapshot_is_refused(data: bytes, finding: str) -> None:
    with pytest.raises(CorruptLog, match=finding):
        list(read_snapshot(data, "x"))
    with pytest.raises(CorruptLog):
        list(read_snapshot_values(data, "x"))


def test_a_snapshot_has_its_name_only_when_it_is_whole() -> None:
    files = MemoryFileSystem()
    files.make_directories("/d")
    files.sync_directory("/")
    part = SnapshotPart(files, "/d", ID, "1")
    part.append([b"abc"])
    assert files.list_directory("/d") == [part_file_name(ID, "1")]
    part.complete()
    files.crash()
    assert files.list_directory("/d") == [snapshot_file_name(ID)]
    assert files.read_bytes(f"/d/{snapshot_file_name(ID)}") == b"abc"


def test_a_snapshot_is_never_written_over() -> None:
    files = MemoryFileSystem()
    files.make_directories("/d")
    write_snapshot(files, "/d", ID, [b"first"], "1")
    write_snapshot(files, "/d", ID, [b"second"], "2")
    late = SnapshotPart(files, "/d", ID, "3")
    late.append([b"third"])
    late.complete()
    assert files.list_directory("/d") == [snapshot_file_name(ID)]
    assert files.read_bytes(f"/d/{snapshot_file_name(ID)}") == b"first"


def test_a_failed_writer_leaves_nothing() -> None:
    files = MemoryFileSystem()
    files.make_directories("/d")

    def content() -> list[bytes]:
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        write_snapshot(files, "/d", ID, (b for b in [b"x", *content()]), "1")
    part = SnapshotPart(files, "/d", ID, "2")
    part.abort()
    assert files.list_directory("/d") == []


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([7, 14, 17, 23, 30]))
def test_an_image_is_encoded_as_its_records_are(seed: int, level: int) -> None:
    feature = FeatureLevelRecord(name=METADATA_VERSION, feature_level=level)
    image = image_of([*history(seed, 60), *more_partitions(seed), feature])
    assert list(encode_image(image)) == list(encode_records(snapshot_records(image)))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([7, 14, 17, 23, 30]))
def test_partitions_are_read_from_values_as_from_their_records(seed: int, level: int) -> None:
    version = partition_version(level)
    reader = PartitionValueReader()
    for record in more_partitions(seed):
        value = frame(record, version if isinstance(record, PartitionRecord) else 0)
        decoded, _ = parse_frame(value)
        read = reader.read(value)
        if read is not None:
            assert isinstance(decoded, PartitionRecord)
            assert read == (decoded.topic_id, decoded.partition_id, registration_of(decoded))


def test_only_whole_values_of_the_common_shape_are_read_without_a_message() -> None:
    record = PartitionRecord(
        partition_id=7,
        topic_id=b"t" * 16,
        replicas=[300, 2],
        isr=[2],
        leader=2,
        leader_epoch=5,
        partition_epoch=9,
        directories=[b"a" * 16, b"b" * 16],
    )
    reader = PartitionValueReader()
    value = frame(record, 2)
    assert reader.read(value) == (b"t" * 16, 7, registration_of(record))
    assert not any(reader.read(value[:size]) for size in range(len(value)))
    assert reader.read(value + b"x") is None
    record.adding_replicas = [2]
    assert reader.read(frame(record, 2)) is None


@pytest.mark.parametrize("replica_count", [1, 126, 127, 200])
def test_lists_with_longer_lengths_are_read_as_messages(replica_count: int) -> None:
    ids = list(range(replica_count))
    record = PartitionRecord(
        replicas=ids, isr=ids, leader=0, directories=[bytes(16)] * replica_count
    )
    read = PartitionValueReader().read(frame(record, 1))
    if replica_count < 127:
        assert read is not None
        assert read[2] == registration_of(record)
    else:
        assert read is None


def more_partitions(seed: int) -> list[Message]:
    """Return records of a topic whose partitions repeat a few shapes with extreme numbers."""
    random = Random(seed)
    topic_id = random.randbytes(16)
    records: list[Message] = [TopicRecord(name="shapes", topic_id=topic_id)]
    for number in range(40):
        replicas = random.choice(([1, 2, 3], [3], [], [2, 1]))
        records.append(
            PartitionRecord(
                partition_id=random.choice((number, 2**31 - 1 - number)),
                topic_id=topic_id,
                replicas=replicas,
                isr=random.choice((replicas, replicas[:1])),
                adding_replicas=random.choice((replicas[:1], [])),
                leader=random.choice((-1, *replicas)),
                leader_epoch=random.choice((0, 2**31 - 1)),
                partition_epoch=random.choice((-1, 7)),
                leader_recovery_state=random.choice((0, 1)),
                directories=[random.choice((bytes(16), b"\xff" * 16)) for _ in replicas],
                eligible_leader_replicas=random.choice((None, replicas[:2])),
                last_known_elr=random.choice((None, replicas[:1])),
            )
        )
    return records


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=200), st.integers(0, 2**40))
def test_a_batch_of_values_is_a_batch_of_records_that_have_nothing_else(
    values: list[bytes], timestamp_ms: int
) -> None:
    records = [SimpleRecord(None, value, timestamp_ms) for value in values]
    assert build_batch_of_values(values, timestamp_ms, 9, 4) == build_batch(
        records, base_offset=9, leader_epoch=4
    )


def test_a_batch_of_no_values_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one record"):
        build_batch_of_values([], 0)
