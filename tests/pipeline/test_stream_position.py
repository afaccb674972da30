"""The offsets in a checkpoint: the form of the `kafka` source, with notes that it passes over."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindle.common.ids import TopicPartition
from spindle.pipeline.streaming.batch_cut import CutByBytes, CutByCount
from spindle.pipeline.streaming.position import (
    INITIAL,
    StreamPosition,
    is_initial,
    position_from_json,
    position_to_json,
)

A0, A1, B10 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 10)
ID = bytes(range(16))

names = st.text("abcXYZ019._-", min_size=1, max_size=8)
offsets = st.dictionaries(
    st.builds(TopicPartition, names, st.integers(0, 2**31 - 1)), st.integers(0, 2**63 - 1)
)
numbers = st.integers(1, 2**63 - 1)
cuts = st.builds(CutByBytes, numbers, st.dictionaries(names, numbers)) | st.builds(
    CutByCount, st.none() | numbers, st.none() | numbers
)
positions = st.builds(
    StreamPosition,
    offsets,
    st.dictionaries(names, st.binary(min_size=16, max_size=16)),
    st.none() | names,
    st.none() | offsets,
    st.none() | cuts,
)


def test_the_form_is_that_of_the_kafka_source_with_empty_objects_as_notes() -> None:
    position = StreamPosition(
        {B10: 5, A1: 2, A0: 1}, {"a": ID}, "cluster=1", {A0: 0}, CutByBytes(2, {"a": 9})
    )
    assert json.dumps(position_to_json(position)) == (
        '{"a": {"0": 1, "1": 2}, "b": {"10": 5}, "@cluster=cluster=1": {}, '
        '"@topic=a=AAECAwQFBgcICQoLDA0ODw": {}, "@start={\\"a\\":{\\"0\\":0}}": {}, '
        '"@cut={\\"tasks\\":2,\\"bytesPerOffset\\":{\\"a\\":9}}": {}}'
    )


@given(positions)
def test_a_position_survives_the_checkpoint(position: StreamPosition) -> None:
    text = json.dumps(position_to_json(position))
    assert position_from_json(json.loads(text)) == position
    assert json.dumps(position_to_json(position_from_json(json.loads(text)))) == text


@given(positions)
def test_without_its_notes_a_position_is_that_of_the_kafka_source(position: StreamPosition) -> None:
    content = position_to_json(position)
    read_by_kafka_source = {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in content.items()
        for partition, offset in partitions.items()
    }
    assert read_by_kafka_source == position.offsets


def test_a_checkpoint_of_the_kafka_source_is_a_position() -> None:
    assert position_from_json({"a": {"0": 7}}) == StreamPosition({A0: 7})


def test_the_initial_offset_is_no_position() -> None:
    assert is_initial(dict(INITIAL))
    assert not is_initial({"a": {"0": 7}})
    with pytest.raises(ValueError, match="checkpoint"):
        position_from_json(dict(INITIAL))


@pytest.mark.parametrize(
    "content",
    [7, None, [], "x", {"logOffset": 3}, {"a": [1]}, {"a": {"x": 1}}, {"a": {"0": "1"}},
     {"a": {"0": -1}}, {"a": {"0": True}}, {"@topic=a=short": {}}, {"@start={": {}},
     {"@start=[1]": {}}, {"@cut=[]": {}}, {'@cut={"tasks":1}': {}},
     {'@cut={"minPartitions":0}': {}}],
)  # fmt: skip
def test_the_checkpoint_of_another_source_is_named(content: object) -> None:
    with pytest.raises(ValueError, match="stream of another source: choose another checkpoint"):
        position_from_json(content)


def test_two_positions_are_the_same_place_whatever_the_first_batch_was() -> None:
    assert StreamPosition({A0: 1}, first_start={A0: 0}).is_at(StreamPosition({A0: 1}))
    assert not StreamPosition({A0: 1}, {"a": ID}).is_at(StreamPosition({A0: 1}))
