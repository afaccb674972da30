"""Names of partition directories and of their files."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindle.common.ids import TopicPartition
from spindle.log.formats.names import (
    LogKind,
    current_directory,
    deleted_directory,
    future_directory,
    offset_name,
    parse_directory_name,
    parse_offset_name,
    replaced_directory,
    stray_directory,
)

UNIQUE = bytes.fromhex("cc065cda861e44619aee6a6247fff6a6")
topics = st.text("abcXYZ019._-", min_size=1, max_size=200).filter(lambda t: t not in (".", ".."))


@given(topics, st.integers(0, 2**31 - 1))
def test_every_name_is_parsed_back(topic: str, partition: int) -> None:
    topic_partition = TopicPartition(topic, partition)
    assert parse_directory_name(current_directory(topic_partition)) == (
        topic_partition,
        LogKind.CURRENT,
        "",
    )
    assert parse_directory_name(future_directory(topic_partition, UNIQUE)) == (
        topic_partition,
        LogKind.FUTURE,
        UNIQUE.hex(),
    )
    for name, kind in (
        (deleted_directory(topic_partition, UNIQUE), LogKind.DELETED),
        (stray_directory(topic_partition, UNIQUE), LogKind.STRAY),
    ):
        parsed = parse_directory_name(name)
        assert (parsed.kind, parsed.unique) == (kind, UNIQUE.hex())
        assert parsed.topic_partition.partition == partition
        assert topic.startswith(parsed.topic_partition.topic)
        assert len(name) <= 255


def test_the_forms_that_kafka_writes() -> None:
    six = TopicPartition("six", 1)
    assert current_directory(six) == "six-1"
    assert deleted_directory(six, UNIQUE) == "six-1.cc065cda861e44619aee6a6247fff6a6-delete"
    assert future_directory(six, UNIQUE) == "six-1.cc065cda861e44619aee6a6247fff6a6-future"
    assert stray_directory(six, UNIQUE) == "six-1.cc065cda861e44619aee6a6247fff6a6-stray"


def test_a_replaced_log_has_the_unique_part_of_the_future_log() -> None:
    six = TopicPartition("six", 1)
    future = future_directory(six, UNIQUE)
    assert replaced_directory(six, future) == deleted_directory(six, UNIQUE)


def test_long_topics_are_cut_except_for_future_logs() -> None:
    long = TopicPartition("t" * 249, 7)
    name = deleted_directory(long, UNIQUE)
    assert (len(name), name.endswith(f"-7.{UNIQUE.hex()}-delete")) == (255, True)
    assert len(stray_directory(long, UNIQUE)) == 255
    with pytest.raises(ValueError, match="has 291 characters, the limit is 255"):
        future_directory(long, UNIQUE)


@pytest.mark.parametrize(
    "name",
    ["", "-", "topic", "-0", "topic-", "topic-x", "t-0.abc-delete2", "t-0-delete", "lost+found"],
)
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is not a directory of a topic partition"):
        parse_directory_name(name)


def test_a_topic_may_look_like_a_decorated_name() -> None:
    odd = TopicPartition("a-1.b-future", 3)
    assert parse_directory_name(current_directory(odd)).topic_partition == odd
    assert parse_directory_name(deleted_directory(odd, UNIQUE)).topic_partition == odd


def test_file_names_of_offsets() -> None:
    assert offset_name(42, ".log") == "00000000000000000042.log"
    assert parse_offset_name("00000000000000000042.log", ".log") == 42
    assert parse_offset_name("00000000000000000042.log.deleted", ".log") is None
    assert parse_offset_name("00000000000000000042.index", ".log") is None
    assert parse_offset_name("leader-epoch-checkpoint", ".log") is None
    assert parse_offset_name(".log", ".log") is None
