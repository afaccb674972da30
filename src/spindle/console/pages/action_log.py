"""Log: the actions that this console has run, and who ran them."""

from collections.abc import Mapping
from typing import Any, Final

from spindle.console.page import Page, PageRequest


def _view(request: PageRequest) -> Mapping[str, Any]:
    return {"entries": request.actions.entries()}


PAGE: Final = Page("action_log", "/log", "Log", _view)
