"""Bars of a page; each repeats a number beside it in colour."""

from collections.abc import Sequence
from typing import Final

from spindle.cli.html.markup import Markup, element

_WHOLE: Final = 100
_HEIGHT: Final = 16
_LANE: Final = 6


def span_bar(start: float, length: float, colour: str) -> Markup:
    """Return a bar that begins and ends anywhere on its track.

    Args:
        start: from 0 to 1.
        length: from 0 to 1; a short bar stays visible.
        colour: a class of the style sheet.
    """
    width = min(_WHOLE, max(0.6, _WHOLE * length)) if length > 0 else 0
    left = min(_WHOLE * start, _WHOLE - width)
    return _svg("bar", element("rect", class_=colour, x=left, width=width, height=_HEIGHT))


def stacked_bar(parts: Sequence[tuple[float, str]]) -> Markup:
    """Return a bar of several colours, each with its share of the track from 0 to 1."""
    rects, left = [], 0.0
    for share, colour in parts:
        width = _WHOLE * share
        rects.append(element("rect", class_=colour, x=left, width=width, height=_HEIGHT))
        left += width
    return _svg("bar", *rects)


def fill_bar(before: float, after: float, peak: float, limit: float) -> Markup:
    """Return the fill of a directory before and after a plan, each from 0 to 1.

    Args:
        peak: the highest fill between, for the time of copies.
        limit: the fill that the plan does not exceed.
    """
    after_class = "after over" if after > limit else "after"
    lower = _HEIGHT - _LANE - 1
    shown_peak = _capped(peak) if peak > max(before, after) else 0
    return _svg(
        "bar fill",
        element("rect", class_="before", y=1, width=_capped(before), height=_LANE),
        element("rect", class_="peak", y=lower, width=shown_peak, height=_LANE),
        element("rect", class_=after_class, y=lower, width=_capped(after), height=_LANE),
        element("line", class_="limit", x1=_capped(limit), x2=_capped(limit), y2=_HEIGHT),
    )


def present_bar(fill: float, limit: float) -> Markup:
    """Return the bar of a directory without a plan; `fill` and `limit` are from 0 to 1."""
    colour = "over" if fill > limit else "span"
    return _svg(
        "bar",
        element("rect", class_=colour, width=_capped(fill), height=_HEIGHT),
        element("line", class_="limit", x1=_capped(limit), x2=_capped(limit), y2=_HEIGHT),
    )


def _capped(part: float) -> float:
    return min(_WHOLE, _WHOLE * part)


def _svg(kind: str, *parts: Markup) -> Markup:
    return element(
        "svg",
        *parts,
        class_=kind,
        viewBox=f"0 0 {_WHOLE} {_HEIGHT}",
        preserveAspectRatio="none",
        aria_hidden="true",
    )
