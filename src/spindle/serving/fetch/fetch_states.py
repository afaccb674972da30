"""The states of a fetch and of each partition in it, their permitted actions and transitions."""

from enum import Enum, IntEnum
from typing import Final


class ReadState(Enum):
    """The actions that a fetch may take for one of its partitions, decided at each check.

    Attributes:
        can_read: records up to the end offset may be read.
        must_answer: the fetch is answered now, and the response contains this partition.
        can_settle: once everything is read, the partition is not checked again until an event
        occurs.
    """

    READABLE = (True, False, True)
    """Records are read as they come; without records the fetch waits."""
    POSITIONS_CHANGED = (True, True, True)
    """Like READABLE, but the high watermark or log start must be sent at once."""
    THROTTLED = (False, False, True)
    """The records wait because the throttle is exceeded (KIP-73)."""
    AHEAD = (False, False, False)
    """A follower names an epoch or partition that is not in this broker's metadata yet: it
    waits."""
    REFUSED = (False, True, False)
    """Nothing is read: the response has an error, a divergence or another replica to read from."""

    def __init__(self, can_read: bool, must_answer: bool, can_settle: bool) -> None:
        self.can_read = can_read
        self.must_answer = must_answer
        self.can_settle = can_settle


class FetchState(IntEnum):
    """The progress of a fetch; the tables below map state and event to the next state."""

    PARKED = 0
    """Less than `min_bytes` is available; the fetch waits for an event or its timeout."""
    READING = 1
    """Directories are being read; with less than `min_bytes`, the fetch is parked again."""
    READING_AGAIN = 2
    """Like READING, but an event occurred: check the partitions again before parking."""
    FINISHING = 3
    """Directories are being read; the fetch is answered with whatever they return."""
    ANSWERED = 4


_PARKED, _READING, _AGAIN, _FINISHING, _ANSWERED = FetchState

ON_CHANGE: Final = (_PARKED, _AGAIN, _AGAIN, _FINISHING, _ANSWERED)
"""On an event of a partition. A parked fetch checks the partition now."""
ON_RECORDS: Final = (_READING, _READING, _AGAIN, _FINISHING, _ANSWERED)
"""On available records. A parked fetch reads them."""
ON_DUE: Final = (_FINISHING, _FINISHING, _FINISHING, _FINISHING, _ANSWERED)
"""On the need to answer. A parked fetch first reads the available records."""
ON_TOO_LITTLE: Final = (_PARKED, _PARKED, _PARKED, _ANSWERED, _ANSWERED)
"""On a completed read of less than `min_bytes`."""
