"""Records of `__consumer_offsets`, byte for byte as Apache Kafka 4.3.1 wrote them.

Sizes, times and checksums come from a recorded log: a batch with the same CRC has the same bytes.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindle.common.errors import CorruptRecords
from spindle.common.ids import TopicPartition
from spindle.common.java_text import string_hash
from spindle.common.uuids import parse_uuid
from spindle.coordinator.classic.classic_group import ClassicGroup, GroupState
from spindle.coordinator.classic.group_record import group_of, group_record, new_group_record
from spindle.coordinator.classic.member import ClassicMember
from spindle.coordinator.consumer.member import ConsumerMember
from spindle.coordinator.consumer.records import (
    RecordKind,
    current_record,
    epoch_record,
    member_record,
    target_epoch_record,
    target_record,
    tombstone,
)
from spindle.coordinator.partitioning import partition_for, utf16_length
from spindle.coordinator.records import (
    CommittedOffset,
    CoordinatorRecord,
    GroupRecord,
    OffsetRecord,
    encode_record,
    parse_record,
)
from spindle.protocol.codec import decode, encode
from spindle.protocol.messages.coordinator_records import (
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from spindle.protocol.records.batch import read_header
from spindle.protocol.records.builder import SimpleRecord, build_batch

IN = parse_uuid("OYAZTAAxSTS4tfxsaZYhug")


def batch_of(records: list[CoordinatorRecord], timestamp_ms: int) -> bytes:
    simple = [SimpleRecord(*encode_record(record), timestamp_ms) for record in records]
    return build_batch(simple, base_sequence=0)


def offset(partition: int, value: int, epoch: int, timestamp_ms: int) -> OffsetRecord:
    committed = CommittedOffset(value, epoch, "", timestamp_ms, topic_id=IN)
    return OffsetRecord("gc", TopicPartition("in", partition), committed)


def test_the_record_of_a_new_group_is_byte_for_byte_that_of_kafka() -> None:
    group = ClassicGroup("gc", 1795269242614)
    batch = batch_of([new_group_record(group)], 1795269242621)
    assert (len(batch), read_header(batch).crc) == (98, 3020611379)


def test_group_that_its_last_member_left() -> None:
    group = ClassicGroup("gc", 0)
    group.add(
        ClassicMember(
            member_id="c-1",
            group_instance_id=None,
            client_id="c",
            client_host="/127.0.0.1",
            rebalance_timeout_ms=300_000,
            session_timeout_ms=45_000,
            protocol_type="consumer",
            protocols=(("range", b""),),
        )
    )
    group.generation_id = 1
    group.state = GroupState.PREPARING_REBALANCE
    group.remove("c-1")
    group.begin_generation(1795269246243)
    batch = batch_of([group_record(group, {})], 1795269246243)
    assert (len(batch), read_header(batch).crc) == (106, 1561502865)


def test_an_offset_commit_of_a_member_is_byte_for_byte_that_of_kafka() -> None:
    time_ms = 1795269242836
    batch = batch_of([offset(0, 8, 0, time_ms), offset(1, 12, 0, time_ms)], 1795269242840)
    assert (len(batch), read_header(batch).crc) == (187, 610807626)


def test_an_offset_commit_of_a_tool_is_byte_for_byte_that_of_kafka() -> None:
    time_ms = 1795269254166
    batch = batch_of([offset(1, 0, -1, time_ms), offset(0, 0, -1, time_ms)], time_ms)
    assert (len(batch), read_header(batch).crc) == (187, 1323074873)


def test_commit_of_a_transaction() -> None:
    committed = CommittedOffset(7, commit_timestamp_ms=1795269257396)
    record = OffsetRecord("gt", TopicPartition("in", 0), committed)
    batch = build_batch(
        [SimpleRecord(*encode_record(record), 1795269257399)],
        producer_id=0,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    assert (len(batch), read_header(batch).crc) == (106, 2338455639)


def test_record_of_a_group_with_members_reads_back() -> None:
    member = GroupMetadataValue.MemberMetadata(
        member_id="m",
        group_instance_id="i",
        client_id="c",
        client_host="/127.0.0.1",
        rebalance_timeout=300_000,
        session_timeout=45_000,
        subscription=b"sub",
        assignment=b"ass",
    )
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=3,
        protocol="range",
        leader="m",
        current_state_timestamp=17,
        members=[member],
    )
    record = GroupRecord("g", value)
    key, encoded = encode_record(record)
    assert (key[:2], encoded is not None and encoded[:2]) == (b"\0\2", b"\0\3")
    assert parse_record(key, encoded, 9) == record
    group = group_of(record)
    group.check()
    assert group.state is GroupState.STABLE
    assert group_record(group, {"m": b"ass"}) == record


def test_old_record_without_rebalance_timeout_takes_the_session_timeout() -> None:
    member = GroupMetadataValue.MemberMetadata(member_id="m", session_timeout=45_000)
    value = GroupMetadataValue(protocol_type="consumer", protocol="range", members=[member])
    group = group_of(GroupRecord("g", value))
    assert group.members["m"].rebalance_timeout_ms == 45_000
    assert group.leader_id == "m"


def test_retention_of_its_own_is_written_at_value_version_1() -> None:
    committed = CommittedOffset(1, -1, "n", 10, 20)
    record = OffsetRecord("g", TopicPartition("t", 0), committed)
    key, value = encode_record(record)
    assert value is not None
    assert value[:2] == b"\0\1"
    assert parse_record(key, value, 3) == record._replace(
        committed=committed._replace(record_offset=3)
    )


def test_a_record_with_key_type_0_is_read_as_an_offset_commit() -> None:
    key, value = encode_record(OffsetRecord("g", TopicPartition("t", 0), CommittedOffset(1)))
    parsed = parse_record(b"\0\0" + key[2:], value, 0)
    assert isinstance(parsed, OffsetRecord)
    assert parsed.group_id == "g"


@pytest.mark.parametrize("kind", [9, 18, 24, 99])
def test_records_of_unknown_types_are_passed_over(kind: int) -> None:
    assert parse_record(kind.to_bytes(2, "big") + b"\0\1g", b"\0\0", 0) is None


def test_records_of_a_consumer_group_have_the_sizes_that_kafka_wrote() -> None:
    """Apache Kafka 4.3.1 wrote these records when the first member joined a group."""
    topic_id = bytes(range(16))
    member = ConsumerMember(
        "DWbnxnQ7RSGUpSGZ6Hj9DQ",
        client_id="c",
        client_host="/127.0.0.1",
        topic_names=frozenset({"in"}),
        rebalance_timeout_ms=300_000,
        epoch=2,
        previous_epoch=0,
        assigned={topic_id: {0: 2, 1: 2}},
    )
    records = [
        member_record("gn", member),
        epoch_record("gn", 2, -8197242094179609364),
        target_record("gn", member.member_id, {topic_id: frozenset({0, 1})}),
        target_epoch_record("gn", 2, 1795269246344),
        current_record("gn", member),
    ]
    sizes = []
    for record in records:
        key, value = encode_record(record)
        assert value is not None
        sizes.append((int.from_bytes(key[:2], "big"), len(key), len(value)))
        assert parse_record(key, value, 0) is not None
        assert parse_record(key, None, 0) == record._replace(value=None)
    assert sizes == [(5, 30, 31), (3, 6, 17), (7, 30, 30), (6, 6, 17), (8, 30, 51)]


def test_a_member_of_the_consumer_protocol_as_kafka_wrote_it() -> None:
    """The tagged field of classic members is there and null; without it, Kafka takes the member
    for a classic one."""
    key = b"\0\5\0\1g\0\1m"
    value = (
        b"\0\0\0\0\x08rdkafka\x0b/127.0.0.1\x02\x02t\x01\x00\x04\x93\xe0\x00"  # up to the assignor
        b"\x01\x00\x01\x00"  # one tagged field, number 0, of one byte: null
    )
    member = ConsumerMember(
        "m",
        client_id="rdkafka",
        client_host="/127.0.0.1",
        topic_names=frozenset({"t"}),
        topic_regex="",
        rebalance_timeout_ms=300_000,
    )
    record = member_record("g", member)
    assert parse_record(key, value, 0) == record
    assert encode_record(record) == (key, value)


def test_topics_of_an_older_consumer_group_are_read_as_nothing() -> None:
    assert parse_record(b"\0\4\0\1g", b"\0\0?", 0) is None
    gone = parse_record(b"\0\4\0\1g", None, 0)
    assert gone == tombstone("g", RecordKind.TOPIC_METADATA)


@pytest.mark.parametrize("version", [2, 3])
def test_other_value_of_the_common_length_is_read_as_what_it_is(version: int) -> None:
    plain = 42
    value = OffsetCommitValue(offset=5, commit_timestamp=6)
    value.metadata = "x" * (plain - 2 - len(encode(value, version)))
    encoded = version.to_bytes(2, "big") + encode(value, version)
    assert len(encoded) == plain
    key, _ = encode_record(OffsetRecord("g", TopicPartition("t", 0), None))
    parsed = parse_record(key, encoded, 1)
    assert parsed == OffsetRecord(
        "g", TopicPartition("t", 0), CommittedOffset(5, -1, value.metadata, 6, record_offset=1)
    )


@given(
    st.builds(
        CommittedOffset,
        st.integers(-1, 2**63 - 1),
        st.integers(-1, 2**31 - 1),
        st.text(max_size=20),
        st.integers(-1, 2**63 - 1),
        st.just(-1),
        st.sampled_from([bytes(16), IN]),
    ),
    st.text(max_size=10),
    st.text(max_size=10),
    st.integers(0, 2**31 - 1),
)
def test_offset_records_are_read_as_written(
    committed: CommittedOffset, group: str, topic: str, partition: int
) -> None:
    record = OffsetRecord(group, TopicPartition(topic, partition), committed)
    key, value = encode_record(record)
    decoded, end = decode(OffsetCommitKey, 1, key, 2)
    assert (decoded.group, decoded.topic, decoded.partition) == (group, topic, partition)
    assert end == len(key)
    assert value is not None
    assert decode(OffsetCommitValue, 4, value, 2)[1] == len(value)
    stored = committed._replace(record_offset=8)
    assert parse_record(key, value, 8) == record._replace(committed=stored)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b""),
        (b"", None),
        (b"\0", None),
        (b"\0\1\0\5ab", None),
        (b"\0\2\0\1g", b""),
        (b"\0\2\0\1g", b"\0\3"),
        (b"\0\2\0\1g", b"\0\x63"),
        (b"\0\1\0\1g\0\1t\0\0\0\0", b"\xff\xff"),
        (b"\0\1\0\1g\0\1t\0\0\0\0", b"\0\4\0"),
    ],
)
def test_broken_records_are_refused(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(CorruptRecords):
        parse_record(key, value, 41)


@pytest.mark.parametrize(
    ("text", "hashed"),
    [("", 0), ("a", 97), ("gc", 3292), ("polygenelubricants", -(1 << 31)), ("\U0001f600", 1772899)],
)
def test_group_ids_are_hashed_as_in_java(text: str, hashed: int) -> None:
    assert string_hash(text) == hashed & 0xFFFFFFFF


def test_partition_of_a_group() -> None:
    # Recorded with two partitions: gc in 0, gn and gt in 1.
    assert [partition_for(group, 2) for group in ("gc", "gn", "gt")] == [0, 1, 1]
    assert partition_for("polygenelubricants", 50) == 0


def test_text_is_measured_in_utf16_units() -> None:
    assert [utf16_length(text) for text in ("", "abc", "é", "\U0001f600")] == [0, 3, 1, 2]
