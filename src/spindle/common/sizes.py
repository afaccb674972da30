"""Sizes in bytes as text for people."""

from typing import Final

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def size_text(size_bytes: int) -> str:
    """Return a size with a binary unit, such as `1.5 GiB`; `-` for a negative (unknown) one."""
    if size_bytes < 0:
        return "-"
    size = float(size_bytes)
    for unit in _UNITS:
        if size < 1024 or unit == _UNITS[-1]:
            return f"{size_bytes} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError("the last unit takes every size")
