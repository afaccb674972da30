"""HTML elements whose texts and attributes are always escaped."""

from html import escape
from typing import Final

from spindle.common.text import printable

_WITHOUT_END: Final = frozenset({"meta", "rect", "line", "br"})


class Markup(str):
    """HTML text. Every other string is data, and is escaped before it becomes a part of a page."""

    __slots__ = ()


def markup(part: str) -> Markup:
    """Return data as HTML text; HTML text is unchanged."""
    return part if isinstance(part, Markup) else Markup(escape(printable(part)))


def joined(*parts: str) -> Markup:
    """Concatenate texts and HTML; texts are escaped."""
    return Markup("".join(map(markup, parts)))


def element(tag: str, *parts: str, **attributes: str | float) -> Markup:
    """Return an element.

    Args:
        parts: its content, data or HTML text.
        attributes: by name; a trailing underscore is dropped, the other ones become hyphens.
    """
    named = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{markup(_text(value))}"'
        for name, value in attributes.items()
    )
    if tag in _WITHOUT_END:
        return Markup(f"<{tag}{named}>" if tag in ("meta", "br") else f"<{tag}{named}/>")
    return Markup(f"<{tag}{named}>{joined(*parts)}</{tag}>")


def _text(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"
