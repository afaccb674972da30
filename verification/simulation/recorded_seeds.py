"""Seeds that have caught a mutant. A hunt begins with them, because few others do.

The simulator draws other stories when it changes, so a seed that no longer catches its mutant is
replaced.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from verification.simulation.scenario import (
    Scenario,
    draw,
    draw_cleaning,
    draw_disks,
    draw_lanes,
    draw_rebuilding,
    draw_shares,
    draw_vanishing,
)


class RecordedSeed(NamedTuple):
    """A seed, and the function that makes its scenario."""

    seed: int
    draw: Callable[[int], Scenario] = draw


RECORDED_SEEDS: Final = {
    "aborted transactions indexed past later ones": RecordedSeed(13),
    "acknowledgements confirmed but not stored": RecordedSeed(3, draw_shares),
    "appends of lanes not announced": RecordedSeed(1, draw_lanes),
    "beginning moves not counted": RecordedSeed(38, draw_disks),
    # A node has to be stopped within milliseconds of its start while the quorum has no leader.
    "clean shutdown lost while loading": RecordedSeed(700_297),
    "compaction confuses keys": RecordedSeed(2, draw_cleaning),
    "cordons ignored by brokers": RecordedSeed(3, draw_disks),
    "decided transactions not continued": RecordedSeed(6),
    "defaults of brokers not applied": RecordedSeed(6),
    "delete horizons ignored by compaction": RecordedSeed(46),
    "delivery counts not stored": RecordedSeed(3, draw_shares),
    "election outside the ISR": RecordedSeed(6),
    "epoch kept at a fence": RecordedSeed(62),
    "epochs hidden from leaders": RecordedSeed(16),
    "fetches for former logs counted": RecordedSeed(8, draw_rebuilding),
    "gaps not verified": RecordedSeed(92, draw_cleaning),
    "last offsets lost by compaction": RecordedSeed(30),
    "late notes of lanes not recorded": RecordedSeed(5, draw_lanes),
    "lease outlives the leader epoch": RecordedSeed(3, draw_lanes),
    "locks of silent workers kept": RecordedSeed(3, draw_shares),
    "lost checkpoints taken for a proof": RecordedSeed(8, draw_vanishing),
    "markers dropped by compaction": RecordedSeed(17),
    "missing logs created empty": RecordedSeed(6, draw_vanishing),
    "moves without the controller": RecordedSeed(16),
    "offsets of aborted transactions kept": RecordedSeed(6),
    "overtaken assignment delivered": RecordedSeed(9),
    "parked syncs lost": RecordedSeed(12),
    "producers forgotten by followers": RecordedSeed(13),
    "recalls of leases lost": RecordedSeed(1, draw_lanes),
    "records in flight not read again": RecordedSeed(3, draw_shares),
    "requests of a lane answered twice": RecordedSeed(1, draw_lanes),
    "segments behind gaps deleted": RecordedSeed(10, draw_cleaning),
    "segments behind gaps deleted, without recovery points": RecordedSeed(8, draw_cleaning),
    "settings of topics not applied": RecordedSeed(6),
    "snapshot with a partition less": RecordedSeed(11),
    "stale high watermark in a lane": RecordedSeed(15, draw_lanes),
    "truncation below the high watermark": RecordedSeed(6),
}
