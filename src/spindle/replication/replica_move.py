"""The course of a move: a replica goes to another log directory of its broker (KIP-113, KIP-858).

A future log grows in the target directory until it has what the current log has. Then the digests
of both are compared, the controller is told the new directory, and as soon as the metadata has it
the future log takes the place of the current one. Pure: no clock, no files.
"""

from enum import Enum
from typing import Final


class MoveState(Enum):
    """Where a move is.

    COPYING: the future log lacks records of the current one.
    VERIFYING: the future log had all records; both logs are compared.
    ASSIGNING: both are equal, the metadata does not have the target yet; copying goes on.
    SWAPPING: appends are held back; the last records are copied and compared, the logs change
    places.
    DONE: the replica is in the target directory.
    CANCELLED: the future log is not wanted any more.
    FAILED: a directory failed, or the copies differ again and again.
    """

    COPYING = "copying"
    VERIFYING = "verifying"
    ASSIGNING = "assigning"
    SWAPPING = "swapping"
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"


class MoveEvent(Enum):
    """Something that happened to a move."""

    CAUGHT_UP = "the future log has all records"
    EQUAL = "the digests of both logs are equal"
    DIFFERENT = "the digests differ"
    RECORDED = "the metadata has the target directory"
    SWAPPED = "the future log is the current one"
    BROKEN = "the current log cannot be copied"
    CANCEL = "the move is not wanted any more"
    SOURCE_FAILED = "the directory of the current log failed"
    TARGET_FAILED = "the directory of the future log failed"


class MoveAction(Enum):
    """Something that has to be done because of an event."""

    ASSIGN_TARGET = "tell the controller the target directory"
    ASSIGN_SOURCE = "tell the controller that the replica stays in the source directory"
    START_OVER = "empty the future log"
    DROP_FUTURE = "delete the future log"


_S: Final = MoveState
_E: Final = MoveEvent
_COPIES: Final = 2
"""How many copies may turn out to be different before the move fails."""

_UNDER_WAY: Final = (_S.COPYING, _S.VERIFYING, _S.ASSIGNING, _S.SWAPPING)

_NEXT: Final = {
    (_S.COPYING, _E.CAUGHT_UP): _S.VERIFYING,
    (_S.VERIFYING, _E.EQUAL): _S.ASSIGNING,
    (_S.ASSIGNING, _E.RECORDED): _S.SWAPPING,
    (_S.SWAPPING, _E.SWAPPED): _S.DONE,
    **{(state, _E.DIFFERENT): _S.COPYING for state in (_S.VERIFYING, _S.ASSIGNING, _S.SWAPPING)},
    **{(state, _E.BROKEN): _S.FAILED for state in _UNDER_WAY},
    **{(state, _E.CANCEL): _S.CANCELLED for state in _UNDER_WAY},
    **{(state, _E.SOURCE_FAILED): _S.FAILED for state in _UNDER_WAY},
    **{(state, _E.TARGET_FAILED): _S.FAILED for state in _UNDER_WAY},
}
"""(state, event) -> state. An event that a state has no row for changes nothing."""


class ReplicaMove:
    """The state machine of one move.

    Attributes:
        is_recorded: the metadata names the target directory.
        verified_end_offset: up to where the copies are known to be equal (exclusive).
    """

    __slots__ = ("_differences", "_is_assigned", "is_recorded", "state", "verified_end_offset")

    def __init__(self, *, needs_assignment: bool = True, is_recorded: bool = False) -> None:
        """Begin to copy.

        Args:
            needs_assignment: the controller knows directories (metadata.version 3.7-IV2).
            is_recorded: an earlier run of the broker had the target recorded.
        """
        self.state = MoveState.COPYING
        self.is_recorded = is_recorded or not needs_assignment
        self.verified_end_offset = -1
        self._is_assigned = is_recorded
        self._differences = 0

    @property
    def is_under_way(self) -> bool:
        """Whether the future log is still to become the current one."""
        return self.state in _UNDER_WAY

    @property
    def is_assigned(self) -> bool:
        """Whether the controller was told the target, and nothing else since."""
        return self._is_assigned

    def step(self, event: MoveEvent) -> tuple[MoveAction, ...]:
        """Take note of an event; return what has to be done, in this order."""
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
        """Forget what was compared at and above the offset that the current log was cut to."""
        self.verified_end_offset = min(self.verified_end_offset, offset)

    def _assign(self) -> tuple[MoveAction, ...]:
        if self.is_recorded:
            self.state = MoveState.SWAPPING
            return ()
        self._is_assigned = True
        return (MoveAction.ASSIGN_TARGET,)

    def _differ(self) -> tuple[MoveAction, ...]:
        """Copy everything once more, or give up."""
        self._differences += 1
        self.verified_end_offset = -1
        if self._differences < _COPIES:
            self.state = MoveState.COPYING
            return (MoveAction.START_OVER,)
        self.state = MoveState.FAILED
        return self._revert(drops=True)

    def _revert(self, *, drops: bool) -> tuple[MoveAction, ...]:
        """Leave the replica where it is; the metadata must not name the target then."""
        actions = [MoveAction.ASSIGN_SOURCE] if self._is_assigned else []
        self._is_assigned = False
        return (*actions, MoveAction.DROP_FUTURE) if drops else tuple(actions)
