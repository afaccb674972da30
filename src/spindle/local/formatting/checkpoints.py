"""The bootstrap snapshot of a formatted directory: the snapshot at offset 0, epoch 0 (KIP-1170).

It holds the first metadata of a new cluster and the first voters of a dynamic quorum (KIP-853).
"""

from collections.abc import Sequence
from typing import Final

from spindle.protocol.message import Message
from spindle.protocol.metadata_frame import frame
from spindle.protocol.records.builder import SimpleRecord, build_batch
from spindle.protocol.records.control import build_control_batch
from spindle.raft.kraft_records import kraft_version, snapshot_footer, snapshot_header, voters
from spindle.raft.voters import VoterSet

_RECORD_VERSION: Final = 0
_EPOCH: Final = 0


def bootstrap_snapshot(
    records: Sequence[Message], voter_set: VoterSet | None, level: int, now_ms: int
) -> bytes:
    """Return the snapshot with the first records of the metadata log.

    Args:
        voter_set: the first voters; None if they are static or join later.
        level: of kraft.version.
    """
    head = [snapshot_header(now_ms)]
    if level > 0:
        head.append(kraft_version(level))
    if voter_set is not None:
        head.append(voters(voter_set))
    values = [
        SimpleRecord(value=frame(record, _RECORD_VERSION), timestamp_ms=now_ms)
        for record in records
    ]
    return b"".join(
        (
            build_control_batch(head, now_ms, 0, _EPOCH),
            build_batch(values, base_offset=len(head), leader_epoch=_EPOCH),
            build_control_batch([snapshot_footer()], now_ms, len(head) + len(values), _EPOCH),
        )
    )
