"""Numbers of things agree with their nouns."""

from spindle.common.counted import counted


def test_one_is_singular_and_all_others_are_plural() -> None:
    assert [counted(count, "move") for count in (0, 1, 2)] == ["0 moves", "1 move", "2 moves"]
    assert counted(1000, "batch", "batches") == "1,000 batches"
