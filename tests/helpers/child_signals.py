"""Signals of child processes.

A test run under `nohup`, or in the background of a shell, ignores some signals, and its children
inherit that.
"""

import signal


def default_signals() -> None:
    """Let a child end by signals as in the foreground of a terminal: for `preexec_fn`."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
