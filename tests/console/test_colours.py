"""The contrast of the console's colours, by the formula of WCAG 2."""

import re
from importlib.resources import files

import pytest

CSS = (files("spindle.console") / "static" / "console.css").read_text()
TEXTS = [
    *[("text", ground) for ground in ("ground", "card", "plain", "error-ground")],
    *[("text", ground) for ground in ("warning-ground", "fine-ground")],
    *[("quiet", ground) for ground in ("ground", "card", "plain")],
    *[("accent", ground) for ground in ("ground", "card")],
    *[("error", ground) for ground in ("ground", "card", "plain", "error-ground")],
    *[("warning", ground) for ground in ("ground", "plain", "warning-ground")],
    *[("fine", ground) for ground in ("card", "fine-ground")],
    ("accent-text", "accent"),
]
SHAPES = [("accent", "track"), ("warning-bar", "track"), ("quiet", "card"), ("fine", "card")]


def colours(is_dark: bool) -> dict[str, str]:
    light, dark = re.findall(r":root \{(.*?)\}", CSS, re.DOTALL)
    values = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]+)", light))
    return {**values, **dict(re.findall(r"--([a-z-]+): (#[0-9a-f]+)", dark))} if is_dark else values


def luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    channels = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    red, green, blue = (
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
def test_texts_and_shapes_are_readable(is_dark: bool) -> None:
    values = colours(is_dark)
    needed = {**dict.fromkeys(SHAPES, 3.0), **dict.fromkeys(TEXTS, 4.5)}
    ratios = {pair: contrast(values[pair[0]], values[pair[1]]) for pair in needed}
    assert {pair: ratio for pair, ratio in ratios.items() if ratio < needed[pair]} == {}
