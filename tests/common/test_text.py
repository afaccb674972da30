"""Numbers of things agree with their nouns, and errors read as sentences."""

import errno
import urllib.error

import pytest

from spindle.common.text import count_noun, error_text, join_first


def test_one_is_singular_and_all_others_are_plural() -> None:
    assert [count_noun(count, "move") for count in (0, 1, 2)] == ["0 moves", "1 move", "2 moves"]
    assert count_noun(1000, "batch", "batches") == "1,000 batches"


def test_the_first_names_are_shown_with_the_number_of_the_others() -> None:
    assert [join_first("abcd"[:end], 2) for end in range(5)] == [
        "",
        "a",
        "a, b",
        "a, b and 1 more",
        "a, b and 2 more",
    ]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "/d/x"), "/d/x: No space left on device"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), "Connection refused"),
        (urllib.error.URLError(OSError(errno.EHOSTUNREACH, "No route")), "No route"),
        (urllib.error.URLError("unknown url type"), "<urlopen error unknown url type>"),
        (TimeoutError(), "TimeoutError"),
        (ValueError("odd"), "odd"),
    ],
)
def test_the_text_of_an_error_has_no_error_number(error: BaseException, text: str) -> None:
    assert error_text(error) == text
