"""Numbers of things agree with their nouns."""

from spindle.common.text import count_noun, join_first


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
