"""Changes of the cluster by the console: each is shown, confirmed by name, run, and logged.

A new change is a function `(ActionForm) -> Action` in `ACTIONS`. It has a dry run, the command line
that does the same, and the name that the user types to confirm it.
"""

import logging
import shlex
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple

from spindle.client.admin.cordons import cordon, uncordon
from spindle.client.blocking.client import WireClient
from spindle.common.errors import ApiError, ErrorCode
from spindle.common.text import count_noun, printable, size_text
from spindle.config.cordon_notes import CordonNote
from spindle.console.snapshot import ConsoleSnapshot

log = logging.getLogger(__name__)
_MAX_ENTRIES: Final = 500


class ActionForm(NamedTuple):
    """The subject of an action.

    Attributes:
        fields: of the address or the form.
        user: who runs it.
    """

    snapshot: ConsoleSnapshot
    fields: Mapping[str, str]
    user: str


@dataclass(frozen=True, slots=True)
class Action:
    """A change.

    Attributes:
        title: of the button and the page, such as `Cordon 2:/disk1`.
        confirmation: the name that the user types.
        words: the command that does the same, without the options of the connection.
        effects: the result of the dry run: what will change, and what will not.
        run: makes the change, and returns one sentence about it.
        back: address of the page about the changed thing.
    """

    title: str
    confirmation: str
    words: tuple[str, ...]
    effects: tuple[str, ...]
    run: Callable[[WireClient], str]
    back: str = "/"


def command_line(words: tuple[str, ...], bootstrap: str) -> str:
    """Return a command for a shell."""
    return shlex.join(["spindle", *words, "-b", bootstrap])


def _directory(form: ActionForm) -> tuple[int, str]:
    """Return the broker and the path in the form.

    Raises:
        ApiError: no broker reports such a directory.
    """
    broker, path = form.fields.get("broker", ""), form.fields.get("path", "")
    is_number = broker.isascii() and broker.isdigit()
    if not is_number or form.snapshot.disk(int(broker), path) is None:
        place = f"{broker}:{path}"
        raise ApiError(ErrorCode.LOG_DIR_NOT_FOUND, f"no broker reports the directory {place}")
    return int(broker), path


def _cordon(form: ActionForm) -> Action:
    broker, path = _directory(form)
    reason = form.fields.get("reason", "").strip() or None
    is_spindle = any(r.is_spindle for r in form.snapshot.status.reports if r.node.node_id == broker)
    owner = form.user if is_spindle else None
    words = ["disks", "cordon", str(broker), path]
    if reason:
        words += ["--reason", reason]
    if owner:
        words += ["--owner", owner]
    held = form.snapshot.replicas_on(broker, path)
    effects = (
        "New replicas are placed into other directories.",
        f"{count_noun(len(held), 'replica')} with {size_text(sum(held.values()))} stay where they "
        "are, and go on.",
    )

    def run(client: WireClient) -> str:
        now_ms = time.time_ns() // 1_000_000
        is_new = cordon(client, broker, CordonNote(path, reason, owner, now_ms))
        return f"Cordoned {broker}:{path}." if is_new else f"Replaced the note of {broker}:{path}."

    place = f"{broker}:{path}"
    return Action(f"Cordon {place}", place, tuple(words), effects, run)


def _uncordon(form: ActionForm) -> Action:
    broker, path = _directory(form)

    def run(client: WireClient) -> str:
        uncordon(client, broker, path)
        return f"Uncordoned {broker}:{path}."

    place = f"{broker}:{path}"
    words = ("disks", "uncordon", str(broker), path)
    effects = ("New replicas may be placed into this directory again.",)
    return Action(f"Uncordon {place}", place, words, effects, run)


ACTIONS: Final[Mapping[str, Callable[[ActionForm], Action]]] = MappingProxyType(
    {"cordon": _cordon, "uncordon": _uncordon}
)


class LogEntry(NamedTuple):
    """An action that was run; `result` is its sentence, or the reason of its failure."""

    time_ms: int
    user: str
    title: str
    command: str
    result: str
    is_failed: bool


class ActionLog:
    """The last 500 actions; each one is also a line of the process's log."""

    def __init__(self) -> None:
        self._entries: deque[LogEntry] = deque(maxlen=_MAX_ENTRIES)

    def add(self, entry: LogEntry) -> None:
        """Add an entry."""
        self._entries.append(entry)
        line = f"{entry.user}: {entry.title}: {entry.result} ({entry.command})"
        log.info("%s", printable(line))

    def entries(self) -> list[LogEntry]:
        """Return the entries, the newest first."""
        return list(reversed(self._entries))
