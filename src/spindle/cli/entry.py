"""The script `spindle`: import the command line, and run it.

The import takes some tenths of a second. During the import, Ctrl-C ends the process without a
traceback.
"""

import signal
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line of this process and exit with its code."""
    # A shell starts background programs with SIGINT ignored; keep that.
    is_handled = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_handled:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from spindle.cli.main import main as run_main
    from spindle.cli.signals import end_like_interrupts

    if is_handled:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    end_like_interrupts()
    run_main()
