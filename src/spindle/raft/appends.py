"""Appends of the leader: control batches of the quorum, and the active controller's records."""

from typing import Final

from spindle.protocol.records.builder import SimpleRecord, build_batch
from spindle.protocol.records.control import build_control_batch
from spindle.raft import kraft_records
from spindle.raft.core import QuorumCore
from spindle.raft.kraft_records import ControlRecord
from spindle.raft.ready import AppendRecords, LeaderAndEpoch, NotLeader

MAX_BATCH_BYTES: Final = 8 << 20
MAX_BATCH_RECORDS: Final = 10_000
_BATCH_OVERHEAD_BYTES: Final = 61
_RECORD_OVERHEAD_BYTES: Final = 25
"""An upper bound for the length, the deltas and the empty key of a record."""


def append_control(core: QuorumCore, records: list[ControlRecord], now_ms: int) -> int:
    """Append a control batch and flush; return the offset of its last record."""
    base_offset = core.log.end_offset
    batch = build_control_batch(records, now_ms, base_offset=base_offset, leader_epoch=core.epoch)
    core.append(batch, base_offset + len(records), core.epoch)
    core.flush()
    apply_control_records(core, batch)
    return base_offset + len(records) - 1


def apply_control_records(core: QuorumCore, batch: bytes) -> None:
    """Use the voter sets and kraft.version levels of an appended control batch."""
    kraft_records.apply_to_history(batch, core.history, core.voters_changed)


def handle_append(core: QuorumCore, event: AppendRecords, now_ms: int) -> None:
    """Append metadata records.

    Raises:
        NotLeader: the local node does not lead that epoch.
        ValueError: there is no record, or atomic records exceed one batch.
    """
    leader = core.leader
    if leader is None or leader.epoch != event.epoch or core.is_shutting_down:
        raise NotLeader(event.epoch, LeaderAndEpoch(core.leader_id, core.epoch))
    groups = split_into_batches(event.values, is_atomic=event.is_atomic)
    for values in groups:
        batch = build_batch(
            [SimpleRecord(None, value, now_ms) for value in values],
            base_offset=core.log.end_offset,
            leader_epoch=leader.epoch,
        )
        core.append(batch, core.log.end_offset + len(values), leader.epoch)
    core.flush()


def split_into_batches(values: list[bytes], *, is_atomic: bool) -> list[list[bytes]]:
    """Return groups of records that each make a batch within the limits.

    Raises:
        ValueError: there is no record, or atomic ones exceed a batch.
    """
    if not values:
        raise ValueError("there is no record to append")
    groups: list[list[bytes]] = []
    size_bytes = MAX_BATCH_BYTES
    for value in values:
        needed_bytes = len(value) + _RECORD_OVERHEAD_BYTES
        if size_bytes + needed_bytes > MAX_BATCH_BYTES or len(groups[-1]) >= MAX_BATCH_RECORDS:
            groups.append([])
            size_bytes = _BATCH_OVERHEAD_BYTES
        groups[-1].append(value)
        size_bytes += needed_bytes
        if size_bytes > MAX_BATCH_BYTES:
            raise ValueError(
                f"a record of {len(value)} bytes does not fit into a batch of {MAX_BATCH_BYTES}"
            )
    if is_atomic and len(groups) > 1:
        raise ValueError(
            f"{len(values)} atomic records of {sum(map(len, values))} bytes exceed one batch: "
            f"at most {MAX_BATCH_RECORDS} records and {MAX_BATCH_BYTES} bytes"
        )
    return groups
