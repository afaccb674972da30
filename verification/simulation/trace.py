"""The history of a simulation for people: one line per event that matters, with its time."""

import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from verification.simulation.incarnation import LIFE

_KEPT_LINES: Final = 4000


class History(logging.Handler):
    """Collects lines; also whatever the nodes log, under the name of the node that logs it.

    Args:
        true_s: gives the time since the start of the simulation.
    """

    def __init__(self, true_s: Callable[[], float]) -> None:
        super().__init__(logging.INFO)
        self._true_s = true_s
        self._lines: deque[str] = deque(maxlen=_KEPT_LINES)

    def note(self, text: str) -> None:
        self._lines.append(f"{self._true_s():10.4f}  {LIFE.get().host:<10}  {text}")

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.exc_info is not None and record.exc_info[1] is not None:
            text += f" ({record.exc_info[1]!r})"
        self.note(f"{record.levelname.lower()}: {text}" if record.levelno > logging.INFO else text)

    def lines(self, last: int | None = None) -> list[str]:
        lines = list(self._lines)
        return lines if last is None else lines[-last:]
