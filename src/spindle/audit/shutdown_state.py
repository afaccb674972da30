"""How a broker left a log directory, which decides which files may be unfinished."""

from enum import Enum
from pathlib import Path

from spindle.audit.file_limits import refuse_odd_file
from spindle.columnar.directory_files import LOCK_FILE, is_in_use
from spindle.log.formats.clean_shutdown import CLEAN_SHUTDOWN_FILE


class ClosingState(Enum):
    """IN_USE: a process holds the lock. CLOSED: the broker was shut down cleanly. KILLED: it was
    not; its next start repairs the ends of logs and the indexes of active segments.
    """

    IN_USE = "in use"
    CLOSED = "closed"
    KILLED = "not closed"


def state_of(directory: Path) -> ClosingState:
    """Return the state of a log directory; OSError if the disk refuses."""
    refuse_odd_file(directory / LOCK_FILE)
    if is_in_use(directory):
        return ClosingState.IN_USE
    if (directory / CLEAN_SHUTDOWN_FILE).exists():
        return ClosingState.CLOSED
    return ClosingState.KILLED
