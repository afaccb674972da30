"""A directory is nearly full above the high watermark, until it falls below the low one."""

import pytest

from spindle.disks.fill_watermarks import Watermarks, nearly_full, used_share

MARKS = Watermarks(0.9, 0.8)


@pytest.mark.parametrize(
    ("usable", "before", "is_full"),
    [
        (10, False, False),
        (9, False, True),
        (15, False, False),
        (15, True, True),
        (19, True, True),
        (20, True, False),
        (0, False, True),
    ],
)
def test_between_the_watermarks_a_directory_stays_as_it_was(
    usable: int, before: bool, is_full: bool
) -> None:
    nearly_full_paths = nearly_full(["/a"] if before else [], {"/a": (100, usable)}, MARKS)
    assert nearly_full_paths == (("/a",) if is_full else ())


def test_a_directory_whose_space_is_not_known_stays_as_it_was() -> None:
    assert nearly_full(["/a", "/b"], {"/b": (0, 0), "/c": (-1, -1)}, MARKS) == ("/b", "/a")


def test_with_a_high_watermark_of_one_nothing_is_nearly_full() -> None:
    assert nearly_full(["/a"], {"/a": (100, 0)}, Watermarks(1.0, 0.8)) == ()


def test_reversed_watermarks_have_no_room_between_them() -> None:
    marks = Watermarks(0.7, 0.8)
    assert nearly_full(["/a"], {"/a": (100, 25)}, marks) == ("/a",)
    assert nearly_full(["/a"], {"/a": (100, 31)}, marks) == ()


def test_reserved_blocks_count_as_used() -> None:
    assert used_share((100, 5)) == pytest.approx(0.95)
    assert used_share((-1, -1)) == 0.0
