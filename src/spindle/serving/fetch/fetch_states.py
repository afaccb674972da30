"""The states of a fetch, and of one partition in it, with what they allow and what follows them."""

from enum import Enum, IntEnum
from typing import Final


class ReadState(Enum):
    """The actions that a fetch may take for one of its partitions, decided at each check.

    Attributes:
        can_read: records up to the end offset may be read.
        must_answer: the whole fetch is answered now, and this partition is told.
        can_settle: once everything is read, the partition needs no look until something happens.
    """

    READABLE = (True, False, True)
    """Read what is there, wait if nothing is."""
    POSITIONS_CHANGED = (True, True, True)
    """The same, but the high watermark or log start must be sent at once."""
    THROTTLED = (False, False, True)
    """A throttle keeps the records for later (KIP-73)."""
    AHEAD = (False, False, False)
    """A follower names an epoch or partition that this broker has not heard of: it waits."""
    REFUSED = (False, True, False)
    """There is nothing to read: an error, a divergence or another replica to read from."""

    def __init__(self, can_read: bool, must_answer: bool, can_settle: bool) -> None:
        self.can_read = can_read
        self.must_answer = must_answer
        self.can_settle = can_settle


class FetchState(IntEnum):
    """How far a fetch is; the tables below give the state that follows each event."""

    PARKED = 0
    """Too little is there; the fetch waits for a change or for its time to be over."""
    READING = 1
    """Directories read; the fetch is parked again if that is too little."""
    READING_AGAIN = 2
    """The same, but something happened meanwhile: look again before parking."""
    FINISHING = 3
    """Directories read; the fetch is answered with whatever they find."""
    ANSWERED = 4


_PARKED, _READING, _AGAIN, _FINISHING, _ANSWERED = FetchState

ON_CHANGE: Final = (_PARKED, _AGAIN, _AGAIN, _FINISHING, _ANSWERED)
"""By state: something happened to a partition. A parked fetch looks at it now."""
ON_RECORDS: Final = (_READING, _READING, _AGAIN, _FINISHING, _ANSWERED)
"""By state: there are records, so a parked fetch reads them."""
ON_DUE: Final = (_FINISHING, _FINISHING, _FINISHING, _FINISHING, _ANSWERED)
"""By state: the fetch must be answered. A parked fetch reads what is there first."""
ON_TOO_LITTLE: Final = (_PARKED, _PARKED, _PARKED, _ANSWERED, _ANSWERED)
"""By state: the directories have found less than `min_bytes`."""
