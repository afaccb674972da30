"""Mutants of the native lanes: mistakes of what Python grants and recalls, and of the lane."""

from typing import Any, Final

from spindle.replicas.partition import Partition
from spindle.runtime.lanes import directory_lane
from spindle.runtime.lanes.directory_lane import GrantedLease
from verification.simulation.lane import LaneModel
from verification.simulation.mutant import Function, Mutant, nothing


def _ignore_late_notes(original: Function) -> Function:
    """Leave out what the lane has appended since Python has last looked, if its lease has ended."""

    def record_progress(log: Any, first_append_ms: int, progress: Any, producers: Any) -> None:
        if log.lease is not None and not log.lease.has_ended:
            original(log, first_append_ms, progress, producers)

    return record_progress


def _lose_recalls(original: Function) -> Function:
    """Let the lane learn of every other recall only."""

    def end(self: Any, *, was_cut: bool = False) -> None:
        if self.number % 2:
            original(self, was_cut=was_cut)

    return end


def _return_served_frames(original: Function) -> Function:
    """Give a connection back with the request that the lane has answered last."""

    def give_back(self: Any, seat: Any, *, is_served: bool) -> None:
        seat.input[:0] = seat.last_frame
        original(self, seat, is_served=is_served)

    return give_back


LANE_MUTANTS: Final[dict[str, Mutant]] = {
    "late notes of lanes not recorded": Mutant(
        directory_lane, "record_progress", _ignore_late_notes
    ),
    "recalls of leases lost": Mutant(GrantedLease, "end", _lose_recalls),
    "requests of a lane answered twice": Mutant(LaneModel, "_give_back", _return_served_frames),
    "stale high watermark in a lane": Mutant(GrantedLease, "raise_high_watermark", nothing),
    "lease outlives the leader epoch": Mutant(Partition, "end_lease", nothing),
    "appends of lanes not announced": Mutant(Partition, "lane_appended", nothing),
}
