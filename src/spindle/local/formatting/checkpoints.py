"""The two files of a formatted directory that hold records.

`bootstrap.checkpoint` holds the first metadata of a new cluster. The snapshot at offset 0, epoch 0
holds the first voters of a dynamic quorum (KIP-853).
"""

from collections.abc import Sequence
from typing import Final

from spindle.protocol.message import Message
from spindle.protocol.metadata_frame import frame
from spindle.protocol.records.builder import SimpleRecord, build_batch
from spindle.protocol.records.control import build_control_batch
from spindle.raft.kraft_records import kraft_version, snapshot_footer, snapshot_header, voters
from spindle.raft.voters import VoterSet

BOOTSTRAP_CHECKPOINT: Final = "bootstrap.checkpoint"
FIRST_SNAPSHOT: Final = "00000000000000000000-0000000000.checkpoint"

_RECORD_VERSION: Final = 0
_EPOCH: Final = 0


def bootstrap_checkpoint(records: Sequence[Message], now_ms: int) -> bytes:
    """Return the file with the first records of the metadata log; its header carries time 0."""
    values = [
        SimpleRecord(value=frame(record, _RECORD_VERSION), timestamp_ms=now_ms)
        for record in records
    ]
    footer_offset = len(values) + 1
    return b"".join(
        (
            build_control_batch([snapshot_header(0)], now_ms, 0, _EPOCH),
            build_batch(values, base_offset=1, leader_epoch=_EPOCH),
            build_control_batch([snapshot_footer()], now_ms, footer_offset, _EPOCH),
        )
    )


def voters_snapshot(voter_set: VoterSet, level: int, now_ms: int) -> bytes:
    """Return the snapshot with the first voters, for this level of kraft.version."""
    head = [snapshot_header(now_ms), kraft_version(level), voters(voter_set)]
    return build_control_batch(head, now_ms, 0, _EPOCH) + build_control_batch(
        [snapshot_footer()], now_ms, len(head), _EPOCH
    )
