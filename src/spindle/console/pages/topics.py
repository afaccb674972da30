"""Topics: all topics with their sizes, searched, sorted and in pages."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from spindle.console.page import Page, PageRequest

PAGE_ROWS: Final = 100
_SORTS: Final = ("name", "partitions", "size")


class TopicRow(NamedTuple):
    """A topic. `problems` counts the partitions without a leader or with replicas out of sync."""

    name: str
    is_internal: bool
    partitions: int
    replication: int
    size: int
    problems: int


def _rows(request: PageRequest) -> list[TopicRow]:
    status = request.snapshot.status
    sizes = request.snapshot.topic_sizes()
    bad: dict[str, int] = {}
    for where in {*status.under_replicated, *status.leaderless}:
        bad[where.topic] = bad.get(where.topic, 0) + 1
    return [
        TopicRow(
            name,
            topic.is_internal,
            len(topic.partitions),
            max((len(p.replicas) for p in topic.partitions.values()), default=0),
            sizes.get(name, 0),
            bad.get(name, 0),
        )
        for name, topic in status.view.topics.items()
    ]


def _view(request: PageRequest) -> Mapping[str, Any]:
    text = request.query.get("q", "")[:249]
    sort = request.query.get("sort", "name")
    sort = sort if sort in _SORTS else "name"
    rows = [row for row in _rows(request) if text.lower() in row.name.lower()]
    rows.sort(key=lambda row: row.name)
    if sort != "name":
        rows.sort(key=lambda row: -getattr(row, sort))
    asked = request.query.get("page", "1")
    last = max(1, -(-len(rows) // PAGE_ROWS))
    number = min(max(1, int(asked[:6]) if asked.isascii() and asked.isdigit() else 1), last)

    def address(**changes: object) -> str:
        return f"/topics?{urlencode({'q': text, 'sort': sort, 'page': number, **changes})}"

    return {
        "q": text,
        "sort": sort,
        "rows": rows[(number - 1) * PAGE_ROWS : number * PAGE_ROWS],
        "found": len(rows),
        "page": number,
        "last_page": last,
        "sorts": {name: address(sort=name, page=1) for name in _SORTS},
        "previous": address(page=number - 1) if number > 1 else "",
        "next": address(page=number + 1) if number < last else "",
        "refused": sorted(request.snapshot.status.view.refused),
    }


PAGE: Final = Page("topics", "/topics", "Topics", _view)
