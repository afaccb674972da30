"""Templates: every value is escaped, and no control character of a name reaches a page."""

import math
import time
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, Final
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from spindle.common.text import count_noun, printable, size_text, span_text

_TEMPLATES: Final = "templates"


def _shown(value: object) -> object:
    """Return a value as templates show it: control and invisible characters become escapes."""
    return value if isinstance(value, Markup) else printable(str(value))


def rate_text(bytes_per_second: float | None) -> str:
    """Return a rate such as `1.5 MiB/s`; `-` if it is unknown."""
    if bytes_per_second is None or math.isnan(bytes_per_second):
        return "-"
    return f"{size_text(int(bytes_per_second))}/s"


def time_text(time_ms: int) -> str:
    """Return a time of day in UTC, with its date."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(time_ms / 1000))


def disk_path(broker_id: int, path: str) -> str:
    """Return the address of the page of a directory."""
    return f"/disk?{urlencode({'broker': broker_id, 'path': path})}"


def topic_path(topic: str) -> str:
    """Return the address of the page of a topic."""
    return f"/topics/{quote(topic, safe='')}"


def group_path(group: str) -> str:
    """Return the address of the page of a group."""
    return f"/groups/{quote(group, safe='')}"


def action_path(name: str, **fields: object) -> str:
    """Return the address of the page that confirms an action."""
    return f"/actions/{name}?{urlencode(fields)}"


class Templates:
    """Renders templates.

    Args:
        common: variables of all templates.
    """

    def __init__(self, common: Mapping[str, Any]) -> None:
        self._environment = Environment(
            loader=PackageLoader("spindle.console", _TEMPLATES),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=_shown,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters.update(
            size=size_text, span=span_text, rate=rate_text, clock=time_text
        )
        self._environment.globals.update(
            disk_path=disk_path,
            topic_path=topic_path,
            action_path=action_path,
            group_path=group_path,
            count_noun=count_noun,
            **common,
        )

    def render(self, name: str, variables: Mapping[str, Any], *, is_part: bool = False) -> str:
        """Return a page.

        Args:
            is_part: only the main part, for a page that is open already.
        """
        layout = "part.html" if is_part else "layout.html"
        template = self._environment.get_template(f"{name}.html")
        return template.render({**variables, "layout": layout})


def static_folder() -> str:
    """Return the folder with scripts and style sheets."""
    return str(files("spindle.console") / "static")
