"""The command `spindle up` as tests start it."""

import sys
from typing import Final

UP: Final = (sys.executable, "-c", "from spindle.cli.main import main; main()", "up")
