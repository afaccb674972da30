"""SIGTERM and SIGHUP end a command as Ctrl-C does: it undoes its changes."""

import signal
from types import FrameType
from typing import Final

_ENDING: Final = (signal.SIGTERM, signal.SIGHUP)
_BY_SIGNAL: Final = 128
_received: list[int] = []


def end_like_interrupts() -> None:
    """Raise KeyboardInterrupt on SIGTERM and SIGHUP, unless they are ignored or handled already.

    Servers set handlers of their own later.
    """
    for number in _ENDING:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _interrupt)


def interrupted_exit_code() -> int:
    """Return the exit code of a command that was ended: 128 and the signal, 130 for Ctrl-C."""
    return _BY_SIGNAL + (_received[0] if _received else signal.SIGINT)


def _interrupt(number: int, frame: FrameType | None) -> None:
    _received.append(number)
    raise KeyboardInterrupt
