"""Notes of cordons: reason, owner and end, beside the list that says what is cordoned."""

import pytest

from spindle.common.errors import ApiError, ConfigError, ErrorCode
from spindle.config.broker_keys import DYNAMIC_KEYS
from spindle.config.cordon_notes import CordonNote, kept_notes, notes_text, parse_notes
from spindle.config.validate import validate_broker

KEY = "spindle.cordon.notes"


def test_notes_come_back_as_they_were_written() -> None:
    notes = (CordonNote("/a", "new disk, 4 TB", "ops", 5, 9), CordonNote("*"), CordonNote("/ä"))
    text = notes_text(notes)
    assert text is not None
    assert parse_notes(text) == notes
    assert notes_text(()) is None
    assert parse_notes("") == parse_notes("[]") == ()
    assert parse_notes('[{"path":"/a","colour":"red"}]') == (CordonNote("/a"),)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('{"path":"/a"}', "not a list of notes"),
        ("[1]", "a note is an object with the path of a log directory"),
        ('[{"path":""}]', "a note is an object with the path of a log directory"),
        ('[{"path":"/a","reason":1}]', "the reason of the note of /a is not a text"),
        ('[{"path":"/a","until_ms":"1"}]', "the until_ms of the note of /a is not a time"),
        ('[{"path":"/a","until_ms":true}]', "the until_ms of the note of /a is not a time"),
        ('[{"path":"/a"},{"path":"/a"}]', "two notes have the same path"),
        (f'[{{"path":"/a","until_ms":{1 << 63}}}]', "not between 0 and 9223372036854775807 ms"),
        ('[{"path":"/a","since_ms":-1}]', "the since_ms of the note of /a is -1"),
        (r'[{"path":"/a","reason":"\ud800"}]', "the reason of a note is not valid Unicode"),
        (r'[{"path":"/\udfff"}]', "the path of a note is not valid Unicode"),
    ],
)
def test_notes_that_cannot_be_read_are_refused(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        parse_notes(text)
    with pytest.raises(ConfigError, match=KEY):
        DYNAMIC_KEYS[KEY].parse(text)


def test_a_note_ends_with_its_cordon_and_at_its_time() -> None:
    a, b = CordonNote("/a", until_ms=100), CordonNote("/b")
    assert kept_notes((a, b), ("/b", "/c")) == (b,)
    assert (a.is_expired(99), a.is_expired(100), b.is_expired(1 << 60)) == (False, True, False)


def test_a_note_without_a_cordon_is_refused() -> None:
    text = notes_text((CordonNote("/a"), CordonNote("/b")))
    assert text is not None
    validate_broker("1", {KEY: text, "cordoned.log.dirs": "/b,/a"})
    with pytest.raises(ApiError) as caught:
        validate_broker("1", {KEY: text, "cordoned.log.dirs": "/b,/c"})
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    assert caught.value.message == (
        "spindle.cordon.notes has a note of /a, which is not an entry of cordoned.log.dirs=/b,/c"
    )
    with pytest.raises(ApiError, match="broker id must be specified"):
        validate_broker("", {KEY: text})
