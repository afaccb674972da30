"""A page: its address, its template, and the function that computes what the template shows."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from spindle.console.actions import ActionLog
from spindle.console.disk_history import DiskHistory
from spindle.console.page_clients import PageClients
from spindle.console.snapshot import ConsoleSnapshot


class PageNotFound(Exception):
    """There is no such thing; the text names it."""


class PageRequest(NamedTuple):
    """The means of a page.

    Attributes:
        names: the variable parts of the address.
        query: the first value of each parameter.
        clients: ask the cluster for what no snapshot has. A view runs on a thread of its own, and
            may wait.
        bootstrap: addresses for command lines.
    """

    snapshot: ConsoleSnapshot
    history: DiskHistory
    names: Mapping[str, Any]
    query: Mapping[str, str]
    clients: PageClients
    actions: ActionLog
    bootstrap: str


View = Callable[[PageRequest], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Page:
    """A page of the console.

    Attributes:
        name: of the template, without `.html`.
        path: the address, with variable parts such as `{topic}`.
        title: in the menu.
        view: returns the variables of the template. It raises PageNotFound if the address names a
            thing that does not exist, and one of `cli.tools.failures.FAILURES` if the cluster does
            not respond.
        menu: the name of the entry of the menu that is marked; its own one by default.
        is_in_menu: False for a page about a single thing.
    """

    name: str
    path: str
    title: str
    view: View
    menu: str = ""
    is_in_menu: bool = True
