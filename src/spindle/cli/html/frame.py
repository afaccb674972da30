"""The frame of a page: head, tiles with numbers, sections, tables, folded parts."""

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any, Final

from spindle.cli.html.markup import Markup, element, joined, markup

_MAX_ROWS: Final = 40
"""A longer table shows this many rows; a click shows the others."""
_POLICY: Final = "default-src 'none'; style-src 'sha256-{}'; base-uri 'none'; form-action 'none'"


@cache
def _style() -> str:
    return (files(__package__) / "page.css").read_text(encoding="utf-8")


def page(kind: str, title: str, about: Sequence[str], *sections: str) -> str:
    """Return a self-contained page. It has no script, and allows none.

    Args:
        kind: what the page shows: plan or audit.
        about: short remarks below the title, such as the time.
    """
    style = _style()
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY.format(digest)),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"{title} - Spindle {kind}"),
        element("style", Markup(style)),
    )
    top = element(
        "header",
        element("p", f"Spindle {kind}", class_="kind"),
        element("h1", title[:1].upper() + title[1:]),
        element("p", " · ".join(about), class_="about"),
    )
    body = element("body", element("main", top, *sections))
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def time_text(time_ms: int) -> str:
    """Return a moment in UTC."""
    return f"{datetime.fromtimestamp(time_ms // 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def about_cluster(document: Mapping[str, Any]) -> list[str]:
    """Return the time and the cluster of a document."""
    about = [time_text(document["timeMs"])]
    if document["clusterId"]:
        about.append(f"cluster {document['clusterId']}")
    return about


def tiles(*tiles_: tuple[str, str, str]) -> Markup:
    """Return large numbers: a name, the number, and a remark for each."""
    return element(
        "dl",
        *(
            element(
                "div",
                element("dt", name),
                element("dd", number, class_="figure"),
                element("dd", remark, class_="remark"),
            )
            for name, number, remark in tiles_
        ),
        class_="tiles",
    )


def section(title: str, *parts: str, hint: str = "") -> Markup:
    """Return a section with a title, and a sentence about it."""
    about = element("p", hint, class_="hint") if hint else ""
    return element("section", element("h2", title), about, *parts)


def notice(kind: str, title: str, *parts: str) -> Markup:
    """Return a highlighted box; kind is a class of the style sheet."""
    return element("div", element("p", title, class_="title"), *parts, class_=f"notice {kind}")


def notes(remarks: Sequence[str]) -> Markup:
    """Return a box with remarks; empty without any."""
    return notice("warning", "Notes", paragraphs(remarks)) if remarks else Markup("")


def quiet(text: str) -> Markup:
    """Return a paragraph in small type; empty without a text."""
    return element("p", text, class_="quiet") if text else Markup("")


def paragraphs(texts: Iterable[str]) -> Markup:
    """Return a paragraph for each text."""
    return joined(*(element("p", text) for text in texts))


def folded(summary: str, *parts: str, is_open: bool = False) -> Markup:
    """Return parts that a click on the summary unfolds."""
    opened = {"open": ""} if is_open else {}
    return element("details", element("summary", summary), *parts, **opened)


def tag(text: str, kind: str) -> Markup:
    """Return a word on coloured ground; kind is a class of the style sheet."""
    return element("span", text, class_=f"tag {kind}")


def table(
    caption: str, head: Sequence[tuple[str, str]], rows: Iterable[Sequence[str]], kind: str = ""
) -> Markup:
    """Return a table that a narrow screen shows as a list of cards.

    Args:
        caption: for screen readers.
        head: title and class of each column; the first column names the row.
        rows: cells, data or HTML text.
    """
    titles = element("tr", *(element("th", name, scope="col", class_=c) for name, c in head))
    return element(
        "table",
        element("caption", caption),
        element("thead", titles),
        element("tbody", *(_row(head, row) for row in rows)),
        class_=kind,
    )


def cut_table(
    caption: str, head: Sequence[tuple[str, str]], rows: Sequence[Sequence[str]]
) -> Markup:
    """Return a table whose rows beyond the first ones are folded."""
    first = table(caption, head, rows[:_MAX_ROWS])
    if len(rows) <= _MAX_ROWS:
        return first
    others = table(f"{caption}, continued", head, rows[_MAX_ROWS:])
    return joined(first, folded(f"the other {len(rows) - _MAX_ROWS:,}", others))


def _row(head: Sequence[tuple[str, str]], cells: Sequence[str]) -> Markup:
    first, *others = zip(head, cells, strict=True)
    return element(
        "tr",
        element("th", first[1], scope="row", class_=first[0][1]),
        *(element("td", cell, class_=kind, data_name=name) for (name, kind), cell in others),
    )


def name_text(text: str) -> Markup:
    """Wrap an untrusted name in <bdi> to isolate its text direction."""
    return element("bdi", markup(text), class_="name")


def place_text(broker: int, path: str) -> Markup:
    """Return a broker and one of its directories."""
    return joined(element("b", str(broker)), ":", name_text(path))
