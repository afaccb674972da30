"""Sizes are shown with a binary unit."""

import pytest

from spindle.common.text import size_text


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (-1, "-"),
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (10 << 20, "10.0 MiB"),
        (3 << 30, "3.0 GiB"),
        (1 << 40, "1.0 TiB"),
        (1 << 70, "1048576.0 PiB"),
    ],
)
def test_sizes_are_shown_in_binary_units(size_bytes: int, text: str) -> None:
    assert size_text(size_bytes) == text
