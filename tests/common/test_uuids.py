"""Kafka's ids and their text form."""

import random

import pytest

from spindle.common.uuids import (
    DIRECTORY_LOST,
    DIRECTORY_UNASSIGNED,
    METADATA_TOPIC_ID,
    ZERO_UUID,
    is_reserved_directory_id,
    parse_uuid,
    uuid_from_random,
    uuid_sort_key,
    uuid_text,
)


def test_text_form_as_kafka_prints_it() -> None:
    assert uuid_text(ZERO_UUID) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert uuid_text(DIRECTORY_UNASSIGNED) == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert uuid_text(DIRECTORY_LOST) == "AAAAAAAAAAAAAAAAAAAAAg"
    assert uuid_text(METADATA_TOPIC_ID) == "AAAAAAAAAAAAAAAAAAAAAQ"


def test_round_trip_and_shape_of_random_ids() -> None:
    rng = random.Random(1)
    for _ in range(500):
        value = uuid_from_random(rng.randbytes)
        text = uuid_text(value)
        assert parse_uuid(text) == value
        assert len(text) == 22
        assert not text.startswith("-")
        assert value[6] >> 4 == 4
        assert not is_reserved_directory_id(value)


@pytest.mark.parametrize("text", ["", "x", "not-a-uuid", "A" * 21, "A" * 23, "A" * 4000, "ä" * 22])
def test_an_invalid_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not an id"):
        parse_uuid(text)


def test_reserved_ids_are_compared_signed() -> None:
    assert is_reserved_directory_id(bytes(15) + bytes([99]))
    assert not is_reserved_directory_id(bytes(15) + bytes([100]))
    assert is_reserved_directory_id(bytes(8) + b"\xff" * 8)


def test_ids_are_ordered_by_signed_halves() -> None:
    low = b"\xff" * 16
    middle = bytes(16)
    high = b"\x01" + bytes(15)
    assert sorted([high, middle, low], key=uuid_sort_key) == [low, middle, high]
