"""The command `spindle up` as tests start it."""

import sys
from collections.abc import Callable
from typing import Final

Say = Callable[..., str]
"""Runs a command, and returns what it prints."""

UP: Final = (sys.executable, "-c", "from spindle.cli.main import main; main()", "up")
