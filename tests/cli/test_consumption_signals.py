"""SIGTERM while records are consumed."""

import signal

import pytest

from spindle.cli.tools.consumption import ending_on_signals


def test_the_handler_of_the_whole_command_stays() -> None:
    def handler(*_: object) -> None:
        pass

    before = signal.signal(signal.SIGTERM, handler)
    try:
        with ending_on_signals():
            assert signal.getsignal(signal.SIGTERM) is handler
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_command_without_a_handler_ends_as_after_ctrl_c() -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with pytest.raises(KeyboardInterrupt), ending_on_signals():
            signal.raise_signal(signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)
