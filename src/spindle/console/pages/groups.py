"""Groups: all groups with their types and states, searched and in pages."""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode

from spindle.cli.tools.groups_text import titled
from spindle.client.admin.groups import list_all_groups
from spindle.console.page import Page, PageRequest

PAGE_ROWS: Final = 100


def _view(request: PageRequest) -> Mapping[str, Any]:
    text = request.query.get("q", "")[:249]
    with request.clients.one() as client:
        listed = list_all_groups(client)
    matching = [group for group in listed if text.lower() in group.group_id.lower()]
    asked = request.query.get("page", "1")
    last = max(1, -(-len(matching) // PAGE_ROWS))
    number = min(max(1, int(asked[:6]) if asked.isascii() and asked.isdigit() else 1), last)

    def address(page: int) -> str:
        return f"/groups?{urlencode({'q': text, 'page': page})}"

    return {
        "q": text,
        "rows": [
            (group.group_id, titled(group.group_type), titled(group.state), group.protocol_type)
            for group in matching[(number - 1) * PAGE_ROWS : number * PAGE_ROWS]
        ],
        "found": len(matching),
        "page": number,
        "last_page": last,
        "previous": address(number - 1) if number > 1 else "",
        "next": address(number + 1) if number < last else "",
    }


PAGE: Final = Page("groups", "/groups", "Groups", _view)
