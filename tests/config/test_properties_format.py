"""Java's properties format, reading and writing."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindle.common.errors import ConfigError
from spindle.config.properties import format_properties, parse_properties, read_properties

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1", {"a": "1"}),
        ("a:1", {"a": "1"}),
        ("a 1", {"a": "1"}),
        ("a\t=\t1", {"a": "1"}),
        ("  a  =  1  ", {"a": "1  "}),
        ("a", {"a": ""}),
        ("a==1", {"a": "=1"}),
        ("a = : 1", {"a": ": 1"}),
        ("=1", {"": "1"}),
        ("# c\n! c\n\n  # c\na=1", {"a": "1"}),
        ("a=1 # no comment", {"a": "1 # no comment"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=1,\\\n   2,\\\n  3\nb=4", {"a": "1,2,3", "b": "4"}),
        ("a=\\\n# no comment", {"a": "# no comment"}),
        ("\\\n# a comment\na=1", {"a": "1"}),
        ("\\\na=1", {"a": "1"}),
        ("a=x\\\\\nb=1", {"a": "x\\", "b": "1"}),
        ("a=1\\", {"a": "1"}),
        ("a\\ b\\=c\\:d=1", {"a b=c:d": "1"}),
        ("a=\\t\\n\\r\\f\\q", {"a": "\t\n\r\fq"}),
        ("a=\\u00e4\\u20AC", {"a": "ä€"}),
        ("a=\\ud83d\\ude00", {"a": "\U0001f600"}),
    ],
)
def test_a_text_is_read_as_java_reads_it(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


def test_keys_keep_the_order_of_the_file() -> None:
    assert list(parse_properties("b=1\na=2\nb=3")) == ["b", "a"]


def test_a_malformed_escape_names_file_and_line() -> None:
    with pytest.raises(ConfigError, match=r"\.properties, line 3: malformed escape '\\u12g4'"):
        parse_properties("a=1\n\nb=\\u12g4", source="server.properties")


@pytest.mark.parametrize("data", ["a=ä\n".encode(), "a=ä\n".encode("iso-8859-1")])
def test_files_are_utf8_or_latin1(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "p"
    path.write_bytes(data)
    assert read_properties(str(path)) == {"a": "ä"}


@given(st.dictionaries(TEXT, TEXT, max_size=5))
def test_written_properties_are_read_back(properties: dict[str, str]) -> None:
    assert parse_properties(format_properties(properties)) == properties


@given(st.dictionaries(TEXT, TEXT, max_size=3))
def test_written_properties_are_ascii_with_one_line_per_key(properties: dict[str, str]) -> None:
    written = format_properties(properties)
    assert written.isascii()
    assert written.count("\n") == len(properties)
