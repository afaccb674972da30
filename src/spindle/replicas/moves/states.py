"""The steps of a move of a replica to another log directory of its broker (KIP-113, KIP-858).

A future log is copied into the target directory until it is equal to the current log.
Then the digests of both are compared, and the new directory is reported to the controller. When
the metadata names it, the future log replaces the current one. Pure: no clock, no files.
"""

from enum import Enum
from typing import Final


class MoveState(Enum):
    """The state of a move.

    COPYING: the future log lacks records of the current one. VERIFYING: the future log had all
    records; both logs are compared. ASSIGNING: both are equal, but the metadata does not record the
    target yet; copying continues. SWAPPING: appends are held back; the last records are copied and
    compared. PROMOTING: the current log was renamed, and the future log gets its name; the source
    directory is no longer needed. DONE: the replica is in the target directory.
    CANCELLED: the future log is no longer wanted. FAILED: a directory failed, or the copies
    differed too often.
    """

    COPYING = "copying"
    VERIFYING = "verifying"
    ASSIGNING = "assigning"
    SWAPPING = "swapping"
    PROMOTING = "promoting"
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"


class MoveEvent(Enum):
    """Something that happened to a move."""

    CAUGHT_UP = "the future log has all records"
    EQUAL = "the digests of both logs are equal"
    DIFFERENT = "the digests differ"
    RECORDED = "the metadata has the target directory"
    SET_ASIDE = "the current log has given up its name"
    SWAPPED = "the future log is the current one"
    BROKEN = "the current log cannot be copied"
    CANCEL = "the move is not wanted any more"
    SOURCE_FAILED = "the directory of the current log failed"
    TARGET_FAILED = "the directory of the future log failed"


class MoveAction(Enum):
    """An action that an event requires."""

    ASSIGN_TARGET = "report the target directory to the controller"
    ASSIGN_SOURCE = "report to the controller that the replica stays in the source directory"
    START_OVER = "empty the future log"
    DROP_FUTURE = "delete the future log"


_S: Final = MoveState
_E: Final = MoveEvent
_COPIES: Final = 2
"""Number of differing copies after which the move fails."""

_BEFORE_RENAMES: Final = (_S.COPYING, _S.VERIFYING, _S.ASSIGNING, _S.SWAPPING)
_UNDER_WAY: Final = (*_BEFORE_RENAMES, _S.PROMOTING)

_NEXT: Final = {
    (_S.COPYING, _E.CAUGHT_UP): _S.VERIFYING,
    (_S.VERIFYING, _E.EQUAL): _S.ASSIGNING,
    (_S.ASSIGNING, _E.RECORDED): _S.SWAPPING,
    (_S.SWAPPING, _E.SET_ASIDE): _S.PROMOTING,
    (_S.PROMOTING, _E.SWAPPED): _S.DONE,
    **{(state, _E.DIFFERENT): _S.COPYING for state in (_S.VERIFYING, _S.ASSIGNING, _S.SWAPPING)},
    **{(state, _E.BROKEN): _S.FAILED for state in _UNDER_WAY},
    **{(state, _E.CANCEL): _S.CANCELLED for state in _BEFORE_RENAMES},
    **{(state, _E.SOURCE_FAILED): _S.FAILED for state in _BEFORE_RENAMES},
    **{(state, _E.TARGET_FAILED): _S.FAILED for state in _UNDER_WAY},
}
"""(state, event) -> state. Without a row for the present state, an event changes nothing."""


class ReplicaMove:
    """The state machine of one move.

    Attributes:
        is_recorded: True if the metadata names the target directory.
        verified_end_offset: offset up to which the copies are known to be equal (exclusive).
    """

    __slots__ = ("_differences", "_is_assigned", "is_recorded", "state", "verified_end_offset")

    def __init__(self, *, needs_assignment: bool = True, is_recorded: bool = False) -> None:
        """Begin to copy.

        Args:
            needs_assignment: True if the controller knows directories (metadata.version 3.7-IV2).
            is_recorded: True if the target was already recorded in an earlier run of the broker.
        """
        self.state = MoveState.COPYING
        self.is_recorded = is_recorded or not needs_assignment
        self.verified_end_offset = -1
        self._is_assigned = is_recorded
        self._differences = 0

    @property
    def is_under_way(self) -> bool:
        """True if the future log may still become the current one."""
        return self.state in _UNDER_WAY

    @property
    def is_assigned(self) -> bool:
        """True if the target is the directory last reported to the controller."""
        return self._is_assigned

    def step(self, event: MoveEvent) -> tuple[MoveAction, ...]:
        """Apply an event; return the actions that it requires, in their order."""
        if event is MoveEvent.RECORDED and self.is_under_way:
            self.is_recorded = True
        following = _NEXT.get((self.state, event))
        if following is None:
            return ()
        if event is MoveEvent.DIFFERENT:
            return self._differ()
        self.state = following
        if following is MoveState.ASSIGNING:
            return self._assign()
        if following in (MoveState.CANCELLED, MoveState.FAILED):
            return self._revert(drops=event in (MoveEvent.CANCEL, MoveEvent.BROKEN))
        return ()

    def truncated_to(self, offset: int) -> None:
        """Discard the comparison from this offset on: the current log was truncated there."""
        self.verified_end_offset = min(self.verified_end_offset, offset)

    def _assign(self) -> tuple[MoveAction, ...]:
        if self.is_recorded:
            self.state = MoveState.SWAPPING
            return ()
        self._is_assigned = True
        return (MoveAction.ASSIGN_TARGET,)

    def _differ(self) -> tuple[MoveAction, ...]:
        """Copy everything again because the logs differ, or end the move as failed."""
        self._differences += 1
        self.verified_end_offset = -1
        if self._differences < _COPIES:
            self.state = MoveState.COPYING
            return (MoveAction.START_OVER,)
        self.state = MoveState.FAILED
        return self._revert(drops=True)

    def _revert(self, *, drops: bool) -> tuple[MoveAction, ...]:
        """Keep the replica in its source directory; the metadata must name it again."""
        actions = [MoveAction.ASSIGN_SOURCE] if self._is_assigned else []
        self._is_assigned = False
        return (*actions, MoveAction.DROP_FUTURE) if drops else tuple(actions)
